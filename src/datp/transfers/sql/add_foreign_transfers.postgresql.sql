-- add_foreign_transfers: generated transfers of a foreign history.
-- index: the primary key
-- rows: transfer
INSERT INTO transfer (transferId, amount, currencyId, expirationDate, createdDate)
SELECT transferId, amount, currencyId, expirationDate, createdDate FROM transfer_rows
