-- commit_transfer: what is reserved is fulfilled and committed, if its deadline has not come: else it expires.
-- index: the primary key
UPDATE datp_transfer SET state = 'COMMITTED', version = version + 2, fulfilment = :fulfilment, changed_at = :now
WHERE id = :id AND state = 'RESERVED' AND (expiration IS NULL OR expiration > :now)
