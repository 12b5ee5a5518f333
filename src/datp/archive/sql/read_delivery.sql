-- read_delivery: one delivery, with all its tries.
-- index: the primary key
SELECT id, tx_id, sequence, owner, url, kind, state, tries, next_try_at, status, says, created_at, updated_at,
  attempts, body
FROM datp_webhook_delivery
WHERE id = :id
