-- due_transfers: some that are pending and past their deadline, the longest first; others that sweep pass over them.
-- index: datp_transfer_due
SELECT id, owner, payer, currency, amount, state FROM datp_transfer
WHERE due <= :now
ORDER BY due LIMIT :count FOR UPDATE SKIP LOCKED
