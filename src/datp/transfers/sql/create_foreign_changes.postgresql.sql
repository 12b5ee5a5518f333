-- create_foreign_changes: the history of a foreign hub, to which it appends.
-- index: none
CREATE TABLE IF NOT EXISTS transferStateChange (
  transferStateChangeId bigserial PRIMARY KEY, transferId varchar(36) NOT NULL, transferStateId varchar(50) NOT NULL, createdDate timestamp(3) NOT NULL
)
