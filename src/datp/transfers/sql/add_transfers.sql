-- add_transfers: generated transfers are there, as they would be after what happened to them.
-- index: the primary key
INSERT INTO datp_transfer (
  id, owner, transfer_id, request_hash, payer, payee, currency, amount, state, version, expiration, condition_digest,
  fulfilment, tx_id, switch, error_code, error_text, created_at, changed_at
) VALUES (
  :id, :owner, :transfer_id, :request_hash, :payer, :payee, :currency, :amount, :state, :version, :expiration,
  :condition_digest, :fulfilment, :tx_id, :switch, :error_code, :error_text, :created_at, :changed_at
)
