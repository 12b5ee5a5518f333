-- index_foreign_changes: the history of one transfer is found.
-- index: none
CREATE INDEX IF NOT EXISTS transferstatechange_transferid ON transferStateChange (transferId)
