-- list_api_keys: every key.
-- index: none; all of them are read, and there are few
SELECT id, secret_hash, owner, role, name, created_at, expires_at, revoked_at
FROM datp_api_key
