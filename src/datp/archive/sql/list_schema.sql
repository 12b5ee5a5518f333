-- list_schema: the migrations that were applied.
-- index: the primary key
SELECT version, name, applied_at FROM datp_schema ORDER BY version
