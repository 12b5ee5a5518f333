-- unlock_schema: others may migrate.
-- index: none
SELECT RELEASE_LOCK(CONCAT(DATABASE(), '.datp_schema'))
