-- describe_server: which server this is, and whether a commit is durable (synchronous: 2 full).
-- index: none
SELECT 'sqlite' AS server, sqlite_version() AS version, s.synchronous AS synchronous, j.journal_mode AS journal_mode
FROM pragma_synchronous AS s, pragma_journal_mode AS j
