-- keep_latest: of a stretch, the transfers that are pending wait for their deadline.
-- index: the transfers' primary key
INSERT INTO datp_transfer_timeout (source, transfer_id, expiration, created_at)
SELECT :source, t.transferId, CAST(round((julianday(t.expirationDate) - 2440587.5) * 86400000.0) AS INTEGER), :now
FROM datp_latest CROSS JOIN {transfers} AS t ON t.transferId = datp_latest.transfer_id
WHERE datp_latest.state IN ('RECEIVED_PREPARE', 'RESERVED') AND t.expirationDate IS NOT NULL
ON CONFLICT (source, transfer_id) DO UPDATE SET expiration = excluded.expiration
