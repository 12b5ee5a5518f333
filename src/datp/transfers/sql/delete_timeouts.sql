-- delete_timeouts: these of a source's transfers wait for their deadline no more.
-- index: the primary key
DELETE FROM datp_transfer_timeout WHERE source = :source AND transfer_id IN (:ids)
