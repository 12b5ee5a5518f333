-- save_timeout: a source's transfer waits for its deadline.
-- index: the primary key
INSERT INTO datp_transfer_timeout (source, transfer_id, expiration, created_at)
VALUES (:source, :transfer_id, :expiration, :now)
ON DUPLICATE KEY UPDATE expiration = VALUES(expiration)
