-- live_states: a page of the transactions that are not final, with their documents.
-- index: datp_transaction_live, which holds nothing else (on MariaDB: a range of it)
SELECT
  tx_id, version, sequence, phase, status, is_final, owner, type, pipeline_version, node_group, external_id,
  request_hash, parent, started_at, ended_at, reply_owed, encoding, document
FROM datp_transaction
WHERE is_final = 0 AND tx_id > :after
ORDER BY tx_id
LIMIT :count
