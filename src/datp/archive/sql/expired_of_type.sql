-- expired_of_type: final transactions of one type, the oldest first, that ended before a time.
-- index: datp_transaction_type; what began before that time and ended after it is passed over
SELECT tx_id
FROM datp_transaction
WHERE parent IS NULL AND type = :type AND status = :status AND started_at < :before_ms AND ended_at < :before_ms
ORDER BY started_at
LIMIT :count
