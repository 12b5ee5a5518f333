-- read_log: a page of what the steps of a transaction wrote.
-- index: datp_log_transaction
SELECT id, tx_id, step_id, at_ms, level, source, text
FROM datp_log
WHERE tx_id = :tx_id AND id > :after AND level >= :level
ORDER BY id
LIMIT :count
