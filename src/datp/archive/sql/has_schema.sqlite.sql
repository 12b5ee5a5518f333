-- has_schema: whether DATP has been here.
-- index: none
SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'datp_schema'
