-- replace_invalid: an id that an invalid prepare had is used by another prepare; its history goes on.
-- index: the primary key
UPDATE datp_transfer SET
  request_hash = :request_hash, payer = :payer, payee = :payee, currency = :currency, amount = :amount, state = :state,
  version = version + 1, expiration = :expiration, condition_digest = :condition_digest, tx_id = :tx_id,
  switch = :switch, error_code = :error_code, error_text = :error_text, changed_at = :now
WHERE id = :id AND state = 'INVALID'
