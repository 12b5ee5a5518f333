-- add_foreign_transfers: generated transfers of a foreign history.
-- index: the primary key
INSERT INTO transfer (transferId, amount, currencyId, expirationDate, createdDate)
VALUES (
  :transferid, :amount, :currencyid, :expirationdate, :createddate
)
