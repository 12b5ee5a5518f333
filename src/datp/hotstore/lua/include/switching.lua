--[[
switching: a switch gets a value, and wakes whoever waits for it.

includes
  waking
writes
  state
  switches
]]
local function put_switch(tx_id, tx, name, value, most)
  local stored = redis.call('HGET', switches_key(tx_id), name)
  if (stored and string.match(stored, '^%S+ (.*)$') or '') == value then return {'SAME'} end
  if not stored and redis.call('HLEN', switches_key(tx_id)) >= most then return refuse('TOO_MANY_SWITCHES') end
  local version = next_version(tx.version)
  if value == '' then
    redis.call('HDEL', switches_key(tx_id), name)
  else
    redis.call('HSET', switches_key(tx_id), name, string.format('%.0f', version) .. ' ' .. value)
  end
  redis.call('HSET', state_key(tx_id), 'version', version, 'switches', '1')
  tx.version = version
  if tx.phase == 'waiting' and tx.wake_switch == name then return {'WOKEN', wake(tx_id, tx, 'switch')} end
  return {'OK', version}
end
