-- claim_events: events that are to be told now, the longest first. SQLite has one writer anyway.
-- index: datp_transfer_event_due
SELECT id, transfer, version, kind, at, deadline, attempts, note FROM datp_transfer_event
WHERE due_at IS NOT NULL AND due_at <= :now
ORDER BY due_at LIMIT :count
