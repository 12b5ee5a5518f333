-- upsert_deliveries: what became of deliveries that the store holds; one that SQL has taken over stays as it is.
-- index: the primary key
INSERT INTO datp_webhook_delivery (
  id, tx_id, sequence, owner, url, kind, state, tries, next_try_at, status, says, created_at, updated_at, body,
  attempts
) VALUES (
  :id, :tx_id, :sequence, :owner, :url, :kind, :state, :tries, :next_try_at, :status, :says, :created_at,
  :updated_at, :body, :attempts
)
-- MariaDB assigns from left to right, and what was assigned is what the next condition sees: the state comes last.
ON DUPLICATE KEY UPDATE
  tries = IF(state <> 'waiting', VALUES(tries), tries),
  next_try_at = IF(state <> 'waiting', VALUES(next_try_at), next_try_at),
  status = IF(state <> 'waiting', VALUES(status), status),
  says = IF(state <> 'waiting', VALUES(says), says),
  updated_at = IF(state <> 'waiting', VALUES(updated_at), updated_at),
  body = IF(state <> 'waiting', VALUES(body), body),
  claim = IF(state <> 'waiting', '', claim),
  forced = IF(state <> 'waiting', 0, forced),
  attempts = IF(state <> 'waiting', CONCAT(attempts, VALUES(attempts)), attempts),
  state = IF(state <> 'waiting', VALUES(state), state)
