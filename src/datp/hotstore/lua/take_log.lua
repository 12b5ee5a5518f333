#!lua flags=allow-oom
--[[
take_log: an archiver fetches what steps said on nodes without a database, the oldest first.

writes
  log
args
  count
returns
  the entries, JSON
]]
return redis.call('LPOP', log_key, count) or {}
