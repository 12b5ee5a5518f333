-- now: the database's clock, in milliseconds. No other query asks for the time.
-- index: none
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
