-- delete_credential: it is gone.
-- index: the primary key
DELETE FROM datp_credential WHERE owner = :owner AND name = :name
