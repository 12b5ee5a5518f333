-- keep_latest: of a stretch, the transfers that are pending wait for their deadline.
-- index: the transfers' primary key
INSERT INTO datp_transfer_timeout (source, transfer_id, expiration, created_at)
SELECT :source, t.transferId, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.expirationDate) DIV 1000, :now
FROM datp_latest STRAIGHT_JOIN {transfers} AS t ON t.transferId = datp_latest.transfer_id
WHERE datp_latest.state IN ('RECEIVED_PREPARE', 'RESERVED') AND t.expirationDate IS NOT NULL
ON DUPLICATE KEY UPDATE expiration = VALUES(expiration)
