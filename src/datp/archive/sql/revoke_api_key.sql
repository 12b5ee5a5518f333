-- revoke_api_key: a key opens nothing any more; the first time counts.
-- index: the primary key
UPDATE datp_api_key SET revoked_at = :revoked_at
WHERE id = :id AND revoked_at IS NULL
