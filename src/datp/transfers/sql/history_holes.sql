-- history_holes: the ranges of ids in a stretch of a source's history that nobody has, or has not committed yet.
-- index: the history's primary key
SELECT previous + 1, id - 1 FROM (
  SELECT transferStateChangeId AS id,
    coalesce(lag(transferStateChangeId) OVER (ORDER BY transferStateChangeId), :after) AS previous
  FROM {history} WHERE transferStateChangeId > :after AND transferStateChangeId <= :until) AS steps
WHERE id - previous > 1 ORDER BY id
