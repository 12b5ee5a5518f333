-- find_api_key: the key of an id.
-- index: the primary key
SELECT id, secret_hash, owner, role, name, created_at, expires_at, revoked_at
FROM datp_api_key
WHERE id = :id
