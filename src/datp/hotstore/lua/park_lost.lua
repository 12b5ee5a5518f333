#!lua flags=allow-oom
--[[
park_lost: an evicted sleeper that SQL can't give back stands on the exception list by its id, with the reason.

includes
  parking
writes
  evicted
  sleeping
items
  tx_id
  version    the version that was evicted, as the caller knows it
  reason     a sentence for the operator
returns
  OK         when it was parked
refuses
  CHANGED    it was restored, adopted or evicted anew meanwhile
]]
return each(function(item)
  local tx_id, version, reason = read_item(item)
  local evicted = redis.call('HGET', evicted_key, tx_id)
  if not evicted or tonumber(evicted) ~= version then return refuse('CHANGED', evicted or '') end
  redis.call('HDEL', evicted_key, tx_id)
  redis.call('ZREM', sleeping_key, tx_id)
  return {'OK', park(tx_id, reason, 'evicted')}
end)
