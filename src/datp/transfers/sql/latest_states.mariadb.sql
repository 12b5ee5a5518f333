-- latest_states: the last state that a source's history has of these transfers, and their deadlines.
-- index: the history's index of transfers, and the primary keys
SELECT h.transferId, h.transferStateId, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.expirationDate) DIV 1000
FROM (SELECT transferId, max(transferStateChangeId) AS id FROM {history} WHERE transferId IN (:ids) GROUP BY transferId) AS m
JOIN {history} AS h ON h.transferStateChangeId = m.id
JOIN {transfers} AS t ON t.transferId = h.transferId
