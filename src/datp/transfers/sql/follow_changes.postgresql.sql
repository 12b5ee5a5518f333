-- follow_changes: of the transfers in a stretch of a source's history, those that are pending at its end wait for their
-- deadline, and those that are not don't.
-- index: the history's primary key, and the transfers'
WITH latest AS MATERIALIZED (
  SELECT DISTINCT ON (transferId) transferId, transferStateId FROM {history}
  WHERE transferStateChangeId > :after AND transferStateChangeId <= :until
  ORDER BY transferId, transferStateChangeId DESC
), settled AS (
  DELETE FROM datp_transfer_timeout AS waits USING latest
  WHERE waits.source = :source AND waits.transfer_id = latest.transferId
    AND latest.transferStateId NOT IN ('RECEIVED_PREPARE', 'RESERVED')
)
INSERT INTO datp_transfer_timeout (source, transfer_id, expiration, created_at)
SELECT :source, t.transferId, (extract(epoch FROM t.expirationDate) * 1000)::bigint, :now
FROM latest JOIN {transfers} AS t ON t.transferId = latest.transferId
WHERE latest.transferStateId IN ('RECEIVED_PREPARE', 'RESERVED') AND t.expirationDate IS NOT NULL
ON CONFLICT (source, transfer_id) DO UPDATE SET expiration = excluded.expiration
