-- list_open_operator_events: the last of what nobody has acknowledged.
-- index: datp_operator_event_last
SELECT id, code, subject, text, first_at, last_at, times, acknowledged_at, acknowledged_by
FROM datp_operator_event
WHERE acknowledged_at IS NULL
ORDER BY last_at DESC, id DESC
LIMIT :count
