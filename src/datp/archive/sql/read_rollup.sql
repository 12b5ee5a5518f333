-- read_rollup: how many transactions, since deleted, ended on each of these days.
-- index: the primary key
SELECT day, owner, type, status, transactions
FROM datp_rollup
WHERE day >= :from_day AND day <= :until_day
ORDER BY day, owner, type, status
