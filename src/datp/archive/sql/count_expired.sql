-- count_expired: how many final transactions of one type ended before a time, and their clients were told.
-- index: datp_transaction_type
SELECT COUNT(*)
FROM datp_transaction
WHERE parent IS NULL AND type = :type AND status = :status AND started_at < :before_ms AND ended_at < :before_ms
  AND reply_owed = 0
