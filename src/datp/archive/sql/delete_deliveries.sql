-- delete_deliveries: some that are done with, and were made before this, are gone.
-- index: datp_webhook_delivery_state
DELETE FROM datp_webhook_delivery WHERE id IN (
  SELECT id FROM (
    SELECT id FROM datp_webhook_delivery WHERE state = :state AND created_at < :before_ms LIMIT :count
  ) AS old
)
