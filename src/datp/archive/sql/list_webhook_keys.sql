-- list_webhook_keys: the keys of an owner that sign at this time, the newest first.
-- index: datp_webhook_key_owner
SELECT id, owner, scheme, secret, created_at, retires_at
FROM datp_webhook_key
WHERE owner = :owner AND (retires_at IS NULL OR retires_at > :now)
ORDER BY created_at DESC, id DESC
