-- raise_change: the changes of this kind are counted on from this number, if they have not come so far.
-- index: the primary key
INSERT INTO datp_change (kind, changes) VALUES (:kind, :number)
ON CONFLICT (kind) DO UPDATE SET changes = excluded.changes WHERE datp_change.changes < excluded.changes
