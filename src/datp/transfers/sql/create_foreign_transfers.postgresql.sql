-- create_foreign_transfers: the table of transfers of a foreign history, as hubs have it.
-- index: none
CREATE TABLE IF NOT EXISTS transfer (
  transferId varchar(36) PRIMARY KEY, amount decimal(18,4) NOT NULL, currencyId varchar(3) NOT NULL, expirationDate timestamp(3), createdDate timestamp(3) NOT NULL
)
