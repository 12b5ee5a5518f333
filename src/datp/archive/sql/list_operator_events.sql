-- list_operator_events: the last of what operators were to be told.
-- index: datp_operator_event_last
SELECT id, code, subject, text, first_at, last_at, times, acknowledged_at, acknowledged_by
FROM datp_operator_event
ORDER BY last_at DESC, id DESC
LIMIT :count
