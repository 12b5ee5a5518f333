-- lock_schema: nobody else migrates until this connection lets go; 1 if so. MariaDB ends a transaction at each CREATE.
-- index: none
SELECT GET_LOCK(CONCAT(DATABASE(), '.datp_schema'), 60)
