-- raise_change: the changes of this kind are counted on from this number, if they have not come so far.
-- index: the primary key
INSERT INTO datp_change (kind, changes) VALUES (:kind, :number)
ON DUPLICATE KEY UPDATE changes = GREATEST(changes, VALUES(changes))
