-- due_soon: pending transfers that expire by then, the first one first; of an owner, or ('') of all.
-- index: datp_transfer_due
SELECT
  id, owner, transfer_id, request_hash, payer, payee, currency, amount, state, version, expiration, condition_digest,
  fulfilment, tx_id, switch, error_code, error_text, created_at, changed_at
FROM datp_transfer WHERE (:owner = '' OR owner = :owner)
  AND state IN ('RECEIVED_PREPARE', 'RESERVED')
  AND expiration >= :after AND (expiration > :after OR id > :after_id) AND expiration <= :until
ORDER BY expiration, id LIMIT :count
