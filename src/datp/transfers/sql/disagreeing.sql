-- disagreeing: of the next transfers, those whose state is not the last of their history.
-- index: the primary keys
SELECT t.owner, t.transfer_id, t.state, t.version, c.state, c.version
FROM datp_transfer AS t LEFT JOIN datp_transfer_change AS c ON c.transfer = t.id AND c.version = (
  SELECT max(version) FROM datp_transfer_change WHERE transfer = t.id)
WHERE t.id > :after AND t.id <= :until AND (c.version IS NULL OR c.version <> t.version OR c.state <> t.state)
ORDER BY t.id
