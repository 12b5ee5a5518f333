-- held_versions: which version of these transactions is stored.
-- index: the primary key
SELECT tx_id, version FROM datp_transaction WHERE tx_id IN (:tx_ids)
