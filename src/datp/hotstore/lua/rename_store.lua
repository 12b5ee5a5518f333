#!lua bare
--[[
rename_store: a partition that is empty, or that is being rebuilt, has a name; one that is in use keeps its own.

writes
  meta
args
  identity  store id, epoch, partitions and schema; and, while it is being rebuilt, a word that says so
  clock     held under simulation, else ''
returns
  the identity in force
]]
local known = redis.call('HGET', meta_key, 'identity')
if not known or string.match(known, '/rebuilding$') then
  redis.call('HSET', meta_key, 'identity', identity, 'clock', clock)
  return {identity}
end
return {known}
