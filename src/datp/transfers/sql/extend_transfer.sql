-- extend_transfer: what is pending has another deadline, or none, if the old one has not come.
-- index: the primary key
UPDATE datp_transfer SET expiration = :expiration, version = version + 1, changed_at = :now
WHERE id = :id AND state IN ('RECEIVED_PREPARE', 'RESERVED') AND (expiration IS NULL OR expiration > :now)
