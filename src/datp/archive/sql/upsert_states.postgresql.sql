-- upsert_states: states are stored; an older version never replaces a newer one, and what is final stays, but for a
-- newer version with the same status, which tells when the client was notified.
-- index: the primary key
-- rows: datp_transaction
INSERT INTO datp_transaction AS held (
  tx_id, version, sequence, phase, status, is_final, owner, type, pipeline_version, node_group, external_id,
  request_hash, parent, started_at, ended_at, reply_owed, encoding, document
)
SELECT
  tx_id, version, sequence, phase, status, is_final, owner, type, pipeline_version, node_group, external_id,
  request_hash, parent, started_at, ended_at, reply_owed, encoding, document
FROM datp_transaction_rows
ON CONFLICT (tx_id) DO UPDATE SET
  version = excluded.version, sequence = excluded.sequence, phase = excluded.phase, status = excluded.status,
  is_final = excluded.is_final, owner = excluded.owner, type = excluded.type,
  pipeline_version = excluded.pipeline_version, node_group = excluded.node_group, external_id = excluded.external_id,
  request_hash = excluded.request_hash, parent = excluded.parent, started_at = excluded.started_at,
  ended_at = excluded.ended_at, reply_owed = excluded.reply_owed, encoding = excluded.encoding,
  document = excluded.document
WHERE excluded.version > held.version AND (held.is_final = 0 OR excluded.status = held.status)
