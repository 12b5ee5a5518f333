-- add_rollup: transactions that are deleted stay counted, by the day on which they ended.
-- index: the primary key
INSERT INTO datp_rollup (day, owner, type, status, transactions)
VALUES (
  :day, :owner, :type, :status, :transactions
)
ON CONFLICT (day, owner, type, status)
DO UPDATE SET transactions = datp_rollup.transactions + excluded.transactions
