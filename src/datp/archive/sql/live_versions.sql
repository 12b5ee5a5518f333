-- live_versions: a page of the transactions that are not final, without their documents: there may be millions.
-- index: datp_transaction_live, which holds nothing else (on MariaDB: a range of it)
SELECT tx_id, version
FROM datp_transaction
WHERE is_final = 0 AND tx_id > :after
ORDER BY tx_id
LIMIT :count
