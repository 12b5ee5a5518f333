-- due_timeouts: some of a source's transfers that are past their deadline, the longest first.
-- index: datp_transfer_timeout_due
SELECT transfer_id, expiration FROM datp_transfer_timeout
WHERE source = :source AND expiration <= :now ORDER BY expiration LIMIT :count
