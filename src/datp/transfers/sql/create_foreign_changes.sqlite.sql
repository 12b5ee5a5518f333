-- create_foreign_changes: the history of a foreign hub, to which it appends.
-- index: none
CREATE TABLE IF NOT EXISTS transferStateChange (
  transferStateChangeId INTEGER PRIMARY KEY AUTOINCREMENT, transferId TEXT NOT NULL, transferStateId TEXT NOT NULL, createdDate TEXT NOT NULL
)
