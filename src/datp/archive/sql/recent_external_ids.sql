-- recent_external_ids: a page of the externalIds of transactions that ended lately, so that they stay taken.
-- index: datp_transaction_ended
SELECT owner, external_id, tx_id, request_hash, ended_at
FROM datp_transaction
WHERE is_final = 1 AND external_id IS NOT NULL
  AND ended_at >= :after_ms AND (ended_at > :after_ms OR tx_id > :after_id)
ORDER BY ended_at, tx_id
LIMIT :count
