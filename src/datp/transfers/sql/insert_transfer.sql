-- insert_transfer: a transfer is received, unless its id is taken.
-- index: the unique (owner, transfer_id)
INSERT INTO datp_transfer (
  owner, transfer_id, request_hash, payer, payee, currency, amount, state, version, expiration, condition_digest,
  fulfilment, tx_id, switch, error_code, error_text, created_at, changed_at
) VALUES (
  :owner, :transfer_id, :request_hash, :payer, :payee, :currency, :amount, :state, 1, :expiration, :condition_digest,
  '', :tx_id, :switch, :error_code, :error_text, :now, :now
)
ON CONFLICT (owner, transfer_id) DO NOTHING
