--[[
parking: a transaction that can't go on stands on the exception list, with a reason that an operator can read.

writes
  state
  exceptions
  reasons
]]
-- from: where it was found. A missing or broken state is parked by its id alone.
local function park(tx_id, reason, from)
  redis.call('ZADD', exceptions_key, now, tx_id)
  redis.call('HSET', reasons_key, tx_id, cjson.encode({reason = reason, from = from, at = now}))
  local kind = redis.call('TYPE', state_key(tx_id)).ok
  if kind == 'hash' then
    local version = next_version(tonumber(redis.call('HGET', state_key(tx_id), 'version') or 0))
    redis.call('HSET', state_key(tx_id), 'phase', 'exception', 'token', '', 'version', version, 'sequence', version)
    return version
  end
  return now
end
