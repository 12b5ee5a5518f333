-- server_time: what time it is, in milliseconds since 1970, by the server's clock.
-- index: none
SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)
