-- history_end: of the next changes of a source's history: the last one's id, and how many there are.
-- index: the history's primary key
SELECT coalesce(max(id), :after), count(*) FROM (
  SELECT transferStateChangeId AS id FROM {history}
  WHERE transferStateChangeId > :after ORDER BY transferStateChangeId LIMIT :count) AS batch
