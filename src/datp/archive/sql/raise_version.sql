-- raise_version: a live transaction has a new version, if it still has the old one.
-- index: the primary key
UPDATE datp_transaction SET version = :to_version
WHERE tx_id = :tx_id AND version = :from_version AND is_final = 0
