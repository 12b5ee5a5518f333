-- resend_delivery: it is tried now, from the first try on; one that is being tried is left alone.
-- index: the primary key
UPDATE datp_webhook_delivery SET
  state = 'waiting', tries = 0, next_try_at = :now, updated_at = :now, forced = 1, body = COALESCE(:body, body)
WHERE id = :id AND claim = ''
