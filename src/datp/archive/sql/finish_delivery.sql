-- finish_delivery: what became of a try of one that SQL holds; whoever lost its claim changes nothing.
-- index: the primary key
UPDATE datp_webhook_delivery SET
  state = :state, tries = :tries, next_try_at = :next_try_at, status = :status, says = :says, updated_at = :updated_at,
  claim = '', forced = 0, body = CASE WHEN :state = 'delivered' THEN NULL ELSE body END,
  attempts = attempts || :attempts
WHERE id = :id AND claim = :claim
