-- create_foreign_changes: the history of a foreign hub, to which it appends.
-- index: none
CREATE TABLE IF NOT EXISTS transferStateChange (
  transferStateChangeId bigint AUTO_INCREMENT PRIMARY KEY, transferId varchar(36) NOT NULL, transferStateId varchar(50) NOT NULL, createdDate datetime(3) NOT NULL,
  KEY transferstatechange_transferid (transferId)
) ENGINE = InnoDB
