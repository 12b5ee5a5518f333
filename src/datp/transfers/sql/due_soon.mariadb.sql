-- due_soon: pending transfers that expire by then, the first one first; of an owner, or ('') of all.
-- index: datp_transfer_due
SELECT
  id, owner, transfer_id, request_hash, payer, payee, currency, amount, state, version, expiration, condition_digest,
  fulfilment, tx_id, switch, error_code, error_text, created_at, changed_at
FROM datp_transfer WHERE (:owner = '' OR owner = :owner)
  AND due >= :after AND (due > :after OR id > :after_id) AND due <= :until
ORDER BY due, id LIMIT :count
