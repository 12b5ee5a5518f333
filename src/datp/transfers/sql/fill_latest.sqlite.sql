-- fill_latest: the last state of each transfer in a stretch of a source's history. SQLite gives the row of the maximum.
-- index: the history's primary key
INSERT INTO datp_latest (transfer_id, state, id)
SELECT transferId, transferStateId, max(transferStateChangeId) FROM {history}
WHERE transferStateChangeId > :after AND transferStateChangeId <= :until GROUP BY transferId
