-- describe_server: which server this is, and whether a commit is durable.
-- index: none
SELECT 'mariadb' AS server, VERSION() AS version,
  @@innodb_flush_log_at_trx_commit AS innodb_flush_log_at_trx_commit, @@sync_binlog AS sync_binlog
