-- search_owner: a page of the transactions of an owner with a status, the newest first.
-- index: datp_transaction_owner
SELECT
  tx_id, version, sequence, phase, status, owner, type, pipeline_version, node_group, external_id, parent, started_at,
  ended_at
FROM datp_transaction
WHERE parent IS NULL AND owner = :owner AND status = :status
  AND started_at >= :from_ms AND started_at <= :before_ms AND (started_at < :before_ms OR tx_id < :before_id)
ORDER BY started_at DESC, tx_id DESC
LIMIT :count
