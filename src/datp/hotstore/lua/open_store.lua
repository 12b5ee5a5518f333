#!lua bare
--[[
open_store: a partition knows who it is; a new one is told, one that knows already is left as it is.

writes
  meta
args
  identity  store id, epoch, partitions and schema, of a new store; '' only asks
  clock     held under simulation, else ''
returns
  the identity in force ('' when there is none), the clock, now
]]
if identity ~= '' and redis.call('HSETNX', meta_key, 'identity', identity) == 1 then
  redis.call('HSET', meta_key, 'clock', clock)
end
local time = redis.call('TIME')
return {redis.call('HGET', meta_key, 'identity') or '', redis.call('HGET', meta_key, 'clock') or '',
  time[1] * 1000 + math.floor(time[2] / 1000)}
