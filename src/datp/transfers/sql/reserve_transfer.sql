-- reserve_transfer: what was received is reserved, if its deadline has not come.
-- index: the primary key
UPDATE datp_transfer SET state = 'RESERVED', version = version + 1, changed_at = :now
WHERE id = :id AND state = 'RECEIVED_PREPARE' AND (expiration IS NULL OR expiration > :now)
