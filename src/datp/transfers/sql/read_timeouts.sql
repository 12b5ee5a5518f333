-- read_timeouts: a source's transfers that wait for their deadline, by id.
-- index: the primary key
SELECT transfer_id, expiration FROM datp_transfer_timeout
WHERE source = :source AND transfer_id > :after ORDER BY transfer_id LIMIT :count
