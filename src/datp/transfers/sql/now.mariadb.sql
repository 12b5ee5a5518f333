-- now: the database's clock, in milliseconds. No other query asks for the time.
-- index: none
SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)
