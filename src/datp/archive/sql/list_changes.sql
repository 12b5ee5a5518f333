-- list_changes: how often definitions of each kind were changed.
-- index: the primary key
SELECT kind, changes FROM datp_change
