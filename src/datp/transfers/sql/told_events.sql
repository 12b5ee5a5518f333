-- told_events: everybody was told of these.
-- index: the primary key
UPDATE datp_transfer_event SET due_at = NULL, told_at = :now WHERE id IN (:ids) AND due_at IS NOT NULL
