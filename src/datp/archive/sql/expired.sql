-- expired: final transactions, the oldest first, that ended before a time.
-- index: datp_transaction_status; what began before that time and ended after it is passed over
SELECT tx_id
FROM datp_transaction
WHERE parent IS NULL AND status = :status AND started_at < :before_ms AND ended_at < :before_ms
ORDER BY started_at
LIMIT :count
