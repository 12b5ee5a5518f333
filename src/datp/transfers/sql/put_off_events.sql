-- put_off_events: these are tried again then, unless they are told before.
-- index: the primary key
UPDATE datp_transfer_event SET due_at = :due_at, attempts = attempts + 1 WHERE id IN (:ids) AND due_at IS NOT NULL
