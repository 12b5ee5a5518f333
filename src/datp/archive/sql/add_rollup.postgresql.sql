-- add_rollup: transactions that are deleted stay counted, by the day on which they ended.
-- index: the primary key
-- rows: datp_rollup
INSERT INTO datp_rollup (day, owner, type, status, transactions)
SELECT day, owner, type, status, transactions FROM datp_rollup_rows
ON CONFLICT (day, owner, type, status)
DO UPDATE SET transactions = datp_rollup.transactions + excluded.transactions
