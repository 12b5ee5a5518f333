-- add_foreign_changes: the history of generated foreign transfers.
-- index: the primary key
INSERT INTO transferStateChange (transferId, transferStateId, createdDate)
VALUES (
  :transferid, :transferstateid, :createddate
)
