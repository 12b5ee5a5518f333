-- upsert_states: states are stored; an older version never replaces a newer one, and what is final stays, but for a
-- newer version with the same status, which tells when the client was notified.
-- index: the primary key
INSERT INTO datp_transaction (
  tx_id, version, sequence, phase, status, is_final, owner, type, pipeline_version, node_group, external_id,
  request_hash, parent, started_at, ended_at, reply_owed, encoding, document
) VALUES (
  :tx_id, :version, :sequence, :phase, :status, :is_final, :owner, :type, :pipeline_version, :node_group, :external_id,
  :request_hash, :parent, :started_at, :ended_at, :reply_owed, :encoding, :document
)
-- MariaDB assigns from left to right, and what was assigned is what the next condition sees. So what the condition
-- reads comes last: status (then it equals the new one exactly if the row was taken), is_final, version.
ON DUPLICATE KEY UPDATE
  sequence = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status), VALUES(sequence), sequence),
  phase = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status), VALUES(phase), phase),
  owner = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status), VALUES(owner), owner),
  type = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status), VALUES(type), type),
  pipeline_version = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status),
    VALUES(pipeline_version), pipeline_version),
  node_group = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status),
    VALUES(node_group), node_group),
  external_id = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status),
    VALUES(external_id), external_id),
  request_hash = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status),
    VALUES(request_hash), request_hash),
  parent = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status), VALUES(parent), parent),
  started_at = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status),
    VALUES(started_at), started_at),
  ended_at = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status), VALUES(ended_at), ended_at),
  reply_owed = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status),
    VALUES(reply_owed), reply_owed),
  encoding = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status), VALUES(encoding), encoding),
  document = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status), VALUES(document), document),
  status = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status), VALUES(status), status),
  is_final = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status), VALUES(is_final), is_final),
  version = IF(VALUES(version) > version AND (is_final = 0 OR VALUES(status) = status), VALUES(version), version)
