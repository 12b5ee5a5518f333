-- lock_schema: nobody else migrates until this connection is done: SQLite's writer is alone from BEGIN IMMEDIATE on.
-- index: none
SELECT 1
