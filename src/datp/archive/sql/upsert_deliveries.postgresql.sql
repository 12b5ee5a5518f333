-- upsert_deliveries: what became of deliveries that the store holds; one that SQL has taken over stays as it is.
-- index: the primary key
-- rows: datp_webhook_delivery
INSERT INTO datp_webhook_delivery AS held (
  id, tx_id, sequence, owner, url, kind, state, tries, next_try_at, status, says, created_at, updated_at, body,
  attempts
)
SELECT
  id, tx_id, sequence, owner, url, kind, state, tries, next_try_at, status, says, created_at, updated_at, body,
  attempts
FROM datp_webhook_delivery_rows
ON CONFLICT (id) DO UPDATE SET
  state = excluded.state, tries = excluded.tries, next_try_at = excluded.next_try_at, status = excluded.status,
  says = excluded.says, updated_at = excluded.updated_at, body = excluded.body, claim = '', forced = 0,
  attempts = held.attempts || excluded.attempts
WHERE held.state <> 'waiting'
