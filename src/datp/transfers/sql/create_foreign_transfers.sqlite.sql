-- create_foreign_transfers: the table of transfers of a foreign history, as hubs have it.
-- index: none
CREATE TABLE IF NOT EXISTS transfer (
  transferId TEXT PRIMARY KEY, amount TEXT NOT NULL, currencyId TEXT NOT NULL, expirationDate TEXT, createdDate TEXT NOT NULL
)
