-- expired: final transactions of one type, the oldest first, that ended before a time, and whose clients were told.
-- index: datp_transaction_type; what began before that time and ended after it is passed over
SELECT tx_id
FROM datp_transaction
WHERE parent IS NULL AND type = :type AND status = :status AND started_at < :before_ms AND ended_at < :before_ms
  AND reply_owed = 0
ORDER BY started_at
LIMIT :count
