-- branches: the branches of these transactions.
-- index: datp_transaction_parent
SELECT tx_id FROM datp_transaction WHERE parent IN (:tx_ids)
