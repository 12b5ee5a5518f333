-- search_external_id: a page of the transactions with an externalId, the newest first; '' stands for any.
-- index: datp_transaction_external_id; one externalId has few transactions, which are put in order
SELECT
  tx_id, version, sequence, phase, status, owner, type, pipeline_version, node_group, external_id, parent, started_at,
  ended_at
FROM datp_transaction
WHERE external_id = :external_id
  AND (:owner = '' OR owner = :owner) AND (:type = '' OR type = :type) AND (:status = '' OR status = :status)
  AND started_at >= :from_ms AND started_at <= :before_ms AND (started_at < :before_ms OR tx_id < :before_id)
ORDER BY started_at DESC, tx_id DESC
LIMIT :count
