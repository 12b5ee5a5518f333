-- delete_transactions: these transactions are gone; what they were is told once, whoever else deletes.
-- index: the primary key
DELETE FROM datp_transaction WHERE tx_id IN (:tx_ids)
RETURNING parent, owner, type, status, ended_at
