-- read_transfers: transfers by their numbers.
-- index: the primary key
SELECT
  id, owner, transfer_id, request_hash, payer, payee, currency, amount, state, version, expiration, condition_digest,
  fulfilment, tx_id, switch, error_code, error_text, created_at, changed_at
FROM datp_transfer WHERE id IN (:ids)
