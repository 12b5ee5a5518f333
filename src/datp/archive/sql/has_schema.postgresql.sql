-- has_schema: whether DATP has been here.
-- index: none
SELECT 1 WHERE to_regclass('datp_schema') IS NOT NULL
