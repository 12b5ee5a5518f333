-- Every credential is gone.

DROP TABLE datp_credential;
