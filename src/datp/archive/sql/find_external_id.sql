-- find_external_id: the newest transaction that an owner started with an externalId.
-- index: datp_transaction_external_id; one externalId has few transactions, which are put in order
SELECT tx_id, request_hash
FROM datp_transaction
WHERE external_id = :external_id AND owner = :owner
ORDER BY started_at DESC, tx_id DESC
LIMIT 1
