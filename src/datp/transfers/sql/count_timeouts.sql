-- count_timeouts: how many of a source's transfers wait for their deadline.
-- index: the primary key
SELECT count(*) FROM datp_transfer_timeout WHERE source = :source
