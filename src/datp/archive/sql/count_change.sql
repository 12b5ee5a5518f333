-- count_change: watchers see that definitions of this kind have changed.
-- index: the primary key
INSERT INTO datp_change (kind, changes) VALUES (:kind, 1)
ON CONFLICT (kind) DO UPDATE SET changes = datp_change.changes + 1
