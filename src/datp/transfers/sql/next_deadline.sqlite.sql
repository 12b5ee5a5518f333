-- next_deadline: when the next pending transfer expires.
-- index: datp_transfer_due
SELECT expiration FROM datp_transfer WHERE state IN ('RECEIVED_PREPARE', 'RESERVED') AND expiration IS NOT NULL ORDER BY expiration LIMIT 1
