-- read_states: transactions with their documents.
-- index: the primary key
SELECT
  tx_id, version, sequence, phase, status, is_final, owner, type, pipeline_version, node_group, external_id,
  request_hash, parent, started_at, ended_at, reply_owed, encoding, document
FROM datp_transaction WHERE tx_id IN (:tx_ids)
