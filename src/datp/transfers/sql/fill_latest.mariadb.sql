-- fill_latest: the last state of each transfer in a stretch of a source's history: later rows replace earlier ones.
-- index: the history's primary key
REPLACE INTO datp_latest (transfer_id, state, id)
SELECT transferId, transferStateId, transferStateChangeId FROM {history}
WHERE transferStateChangeId > :after AND transferStateChangeId <= :until ORDER BY transferStateChangeId
