-- lock_schema: nobody else migrates until this transaction ends. The number is the letters datp.
-- index: none
SELECT 1 FROM pg_advisory_xact_lock(1684108400)
