-- server_time: what time it is, in milliseconds since 1970, by the server's clock.
-- index: none
SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
