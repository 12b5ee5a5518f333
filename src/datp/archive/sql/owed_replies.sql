-- owed_replies: a page of the final transactions whose clients have not been told, with their documents.
-- index: datp_transaction_owed
SELECT
  tx_id, version, sequence, phase, status, is_final, owner, type, pipeline_version, node_group, external_id,
  request_hash, parent, started_at, ended_at, reply_owed, encoding, document
FROM datp_transaction
WHERE is_final = 1 AND reply_owed = 1 AND tx_id > :after
ORDER BY tx_id
LIMIT :count
