-- insert_timed_out: these of a source's transfers are to be told as due, each once.
-- index: the primary keys
INSERT INTO datp_transfer_timed_out (source, transfer_id, expiration, found_at, due_at, attempts)
SELECT source, transfer_id, expiration, :now, :now, 0 FROM datp_transfer_timeout
WHERE source = :source AND transfer_id IN (:ids)
ON DUPLICATE KEY UPDATE attempts = datp_transfer_timed_out.attempts
