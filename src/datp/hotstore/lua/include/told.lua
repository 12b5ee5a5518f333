--[[
told: that a client has heard of the end is archived with it, so that a rebuilt store doesn't tell it again.

writes
  state
  to_archive
  started
]]
-- Whether the state was here to be marked; if it has left memory, only SQL can be.
local function mark_told(tx_id, is_delivered)
  local phase, version, started_at = unpack(redis.call('HMGET', state_key(tx_id), 'phase', 'version', 'started_at'))
  if phase ~= 'complete' then return phase end
  -- An archiver may be writing it this very moment, still owed: the version says that there is more to write.
  redis.call('HSET', state_key(tx_id), 'version', next_version(version))
  if is_delivered then redis.call('HSETNX', state_key(tx_id), 'notified_at', now) end
  redis.call('PERSIST', state_key(tx_id))
  if not redis.call('ZSCORE', to_archive_key, tx_id) then
    redis.call('ZADD', to_archive_key, now, tx_id)
    redis.call('ZADD', started_key, started_at, tx_id)
  end
  return phase
end
