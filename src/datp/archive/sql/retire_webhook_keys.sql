-- retire_webhook_keys: the other keys of this kind sign until then, and no longer.
-- index: datp_webhook_key_owner
UPDATE datp_webhook_key SET retires_at = :retires_at
WHERE owner = :owner AND scheme = :scheme AND id <> :keep AND (retires_at IS NULL OR retires_at > :retires_at)
