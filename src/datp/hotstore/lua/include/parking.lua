--[[
parking: a transaction that can't go on stands on the exception list, with a reason that an operator can read.

includes
  raising
  telling
writes
  state
  exceptions
  reasons
  deadlines
]]
-- from: where it was found. A missing or broken state is parked by its id alone; a final status never changes.
local function park(tx_id, reason, from)
  local is_hash = redis.call('TYPE', state_key(tx_id)).ok == 'hash'
  if is_hash and redis.call('HGET', state_key(tx_id), 'phase') == 'complete' then return now end
  redis.call('ZADD', exceptions_key, now, tx_id)
  redis.call('HSET', reasons_key, tx_id, cjson.encode({reason = reason, from = from, at = now}))
  local type = is_hash and redis.call('HGET', state_key(tx_id), 'type')
  raise_event('transaction-parked', has(type) and type or 'without a state', tx_id .. ': ' .. reason)
  if is_hash then
    local stored, deadline, undoing, verdict, parent, webhook = unpack(redis.call(
      'HMGET', state_key(tx_id), 'version', 'deadline', 'undoing', 'verdict', 'parent', 'webhook'))
    -- Its deadline holds here too, also if it stood in sleepingZ's score until now.
    if tonumber(deadline) and not has(undoing) and not has(verdict) then
      redis.call('ZADD', deadlines_key, deadline, tx_id)
    end
    local version = next_version(tonumber(stored))
    redis.call('HSET', state_key(tx_id), 'phase', 'exception', 'token', '', 'version', version, 'sequence', version)
    if not parent then tell_change(tx_id, webhook, 'waiting', version) end
    return version
  end
  return now
end
