-- list_transfers: an owner's transfers in a state, the newest first.
-- index: datp_transfer_owner
SELECT
  id, owner, transfer_id, request_hash, payer, payee, currency, amount, state, version, expiration, condition_digest,
  fulfilment, tx_id, switch, error_code, error_text, created_at, changed_at
FROM datp_transfer WHERE owner = :owner AND state = :state AND id < :before
ORDER BY id DESC LIMIT :count
