-- owe_delivery: a party is to be told by webhook, once; whoever has the role webhooks tells it.
-- index: the primary key
INSERT INTO datp_webhook_delivery (
  id, tx_id, sequence, owner, url, kind, state, tries, next_try_at, status, says, created_at, updated_at, body, attempts
) VALUES (
  :id, :about, :version, :owner, :url, :kind, 'waiting', 0, :now, 0, '', :now, :now, :body, ''
)
ON CONFLICT (id) DO NOTHING
