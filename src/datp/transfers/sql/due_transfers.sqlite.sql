-- due_transfers: some that are pending and past their deadline, the longest first. SQLite has one writer anyway.
-- index: datp_transfer_due
SELECT id, owner, payer, currency, amount, state FROM datp_transfer
WHERE state IN ('RECEIVED_PREPARE', 'RESERVED') AND expiration <= :now
ORDER BY expiration LIMIT :count
