-- history_range: the changes of a range of ids in which nobody was before.
-- index: the history's primary key
SELECT transferStateChangeId, transferId FROM {history}
WHERE transferStateChangeId >= :first_id AND transferStateChangeId <= :last_id
ORDER BY transferStateChangeId
