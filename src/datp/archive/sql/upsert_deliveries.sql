-- upsert_deliveries: what became of deliveries that the store holds; one that SQL has taken over stays as it is.
-- index: the primary key
INSERT INTO datp_webhook_delivery (
  id, tx_id, sequence, owner, url, kind, state, tries, next_try_at, status, says, created_at, updated_at, body,
  attempts
) VALUES (
  :id, :tx_id, :sequence, :owner, :url, :kind, :state, :tries, :next_try_at, :status, :says, :created_at,
  :updated_at, :body, :attempts
)
ON CONFLICT (id) DO UPDATE SET
  state = excluded.state, tries = excluded.tries, next_try_at = excluded.next_try_at, status = excluded.status,
  says = excluded.says, updated_at = excluded.updated_at, body = excluded.body, claim = '', forced = 0,
  attempts = datp_webhook_delivery.attempts || excluded.attempts
WHERE datp_webhook_delivery.state <> 'waiting'
