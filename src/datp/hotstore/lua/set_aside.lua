#!lua flags=allow-oom
--[[
set_aside: a state that SQL doesn't take stays in memory, and is given to the archive again much later.

writes
  state
  to_archive
args
  archive_again_ms  how much later
items
  tx_id
  version    the version that was refused
  reason     a sentence for the operator
returns
  OK         when it is given again
  CHANGED    it has a newer version, which may be taken
refuses
  NO_STATE   there is no such state
]]
return each(function(item)
  local tx_id, version, reason = read_item(item)
  local stored = redis.call('HGET', state_key(tx_id), 'version')
  if not stored then return refuse('NO_STATE') end
  if tonumber(stored) ~= version then return {'CHANGED', stored} end
  redis.call('HSET', state_key(tx_id), 'unarchivable', reason)
  redis.call('ZADD', to_archive_key, now + archive_again_ms, tx_id)
  return {'OK', text_of(now + archive_again_ms)}
end)
