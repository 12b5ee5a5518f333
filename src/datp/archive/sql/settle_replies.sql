-- settle_replies: the ends of these transactions need not be told again.
-- index: the primary key
UPDATE datp_transaction SET reply_owed = 0 WHERE tx_id IN (:tx_ids)
