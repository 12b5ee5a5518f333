-- next_type: the next of the types of which there are transactions, in their order.
-- index: datp_transaction_type; a step to the next type each time, however many transactions one has
SELECT type
FROM datp_transaction
WHERE parent IS NULL AND type > :after
ORDER BY type
LIMIT 1
