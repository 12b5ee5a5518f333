-- delete_log: what the steps of these transactions wrote is gone.
-- index: datp_log_transaction
DELETE FROM datp_log WHERE tx_id IN (:tx_ids)
