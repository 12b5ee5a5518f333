-- list_timed_out: a source's transfers that were due, by id.
-- index: the primary key
SELECT transfer_id, expiration, found_at, told_at FROM datp_transfer_timed_out
WHERE source = :source AND transfer_id > :after ORDER BY transfer_id LIMIT :count
