-- list_all_deliveries: a page of everybody's deliveries in a state, the newest first.
-- index: datp_webhook_delivery_state
SELECT id, tx_id, sequence, owner, url, kind, state, tries, next_try_at, status, says, created_at, updated_at
FROM datp_webhook_delivery
WHERE state = :state
  AND created_at <= :before_ms AND (created_at < :before_ms OR id < :before_id)
ORDER BY created_at DESC, id DESC
LIMIT :count
