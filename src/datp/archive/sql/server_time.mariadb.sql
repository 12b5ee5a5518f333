-- server_time: what time it is, in milliseconds since 1970, by the server's clock.
-- index: none
SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS INTEGER)
