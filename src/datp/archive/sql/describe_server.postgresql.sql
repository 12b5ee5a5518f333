-- describe_server: which server this is, and whether a commit is durable.
-- index: none
SELECT 'postgresql' AS server, current_setting('server_version') AS version,
  current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync
