-- count_change: watchers see that definitions of this kind have changed.
-- index: the primary key
INSERT INTO datp_change (kind, changes) VALUES (:kind, 1)
ON DUPLICATE KEY UPDATE changes = changes + 1
