-- due_operator_events: the next of what is to be posted to the operator's webhook.
-- index: datp_operator_event_tell
SELECT id, code, subject, text, first_at, last_at, times, acknowledged_at, acknowledged_by, tell_at, tell_tries
FROM datp_operator_event
WHERE tell_at <= :now_ms
ORDER BY tell_at
LIMIT :count
