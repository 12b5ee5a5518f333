-- now: the database's clock, in milliseconds. No other query asks for the time.
-- index: none
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
