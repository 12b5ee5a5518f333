-- due_deliveries: those that SQL holds and that are to be tried now; who else asks is given others.
-- index: datp_webhook_delivery_due
SELECT id, tx_id, sequence, owner, url, kind, tries, forced, body
FROM datp_webhook_delivery
WHERE state = 'waiting' AND next_try_at <= :now
ORDER BY next_try_at
LIMIT :count
FOR UPDATE SKIP LOCKED
