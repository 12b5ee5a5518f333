-- add_foreign_changes: the history of generated foreign transfers.
-- index: the primary key
-- rows: transferStateChange
INSERT INTO transferStateChange (transferId, transferStateId, createdDate)
SELECT transferId, transferStateId, createdDate FROM transferStateChange_rows
