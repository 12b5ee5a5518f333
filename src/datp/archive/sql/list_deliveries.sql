-- list_deliveries: a page of the deliveries of an owner in a state, the newest first.
-- index: datp_webhook_delivery_owner
SELECT id, tx_id, sequence, owner, url, kind, state, tries, next_try_at, status, says, created_at, updated_at
FROM datp_webhook_delivery
WHERE owner = :owner AND state = :state
  AND created_at <= :before_ms AND (created_at < :before_ms OR id < :before_id)
ORDER BY created_at DESC, id DESC
LIMIT :count
