-- Everything that was archived is gone.

DROP TABLE datp_transaction;

DROP TABLE datp_store;
