-- next_deadline: when the next pending transfer expires.
-- index: datp_transfer_due
SELECT due FROM datp_transfer WHERE due IS NOT NULL ORDER BY due LIMIT 1
