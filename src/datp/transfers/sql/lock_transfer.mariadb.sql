-- lock_transfer: an owner's transfer, which nobody else changes until this SQL transaction ends.
-- index: the unique (owner, transfer_id)
SELECT
  id, owner, transfer_id, request_hash, payer, payee, currency, amount, state, version, expiration, condition_digest,
  fulfilment, tx_id, switch, error_code, error_text, created_at, changed_at
FROM datp_transfer WHERE owner = :owner AND transfer_id = :transfer_id FOR UPDATE
