-- acknowledge_operator_event: somebody has seen it, and it need not be told any more.
-- index: the primary key
UPDATE datp_operator_event
SET acknowledged_at = :acknowledged_at, acknowledged_by = :acknowledged_by, tell_at = NULL
WHERE id = :id AND acknowledged_at IS NULL
