-- add_changes: the history of generated transfers is there.
-- index: the primary key
-- rows: datp_transfer_change
INSERT INTO datp_transfer_change (transfer, version, state, reason, at)
SELECT transfer, version, state, reason, at FROM datp_transfer_change_rows
