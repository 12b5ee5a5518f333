#!lua flags=allow-oom
--[[
restore: an evicted sleeper is back in memory, and what it was touched for is done in the same call.

includes
  ending
  switching
writes
  evicted
  sleeping
  to_archive
  started
args
  external_id_period_ms
  archive_delay_ms
  cancel_grace_ms
  evict_after_ms
  switches_max
items
  tx_id
  version    the version that SQL holds
  fields     name, value, … as they were archived, without the document
  switches   name, value, …
  then_do    due (its time has come), switch, wake, cancel, or '' for nothing
  name       the switch, or who cancels and why
  value      the switch's value, JSON
bodies
  state      the document
returns
  OK         version
  WOKEN      version
  SAME       the switch had this value
  TIMEOUT    its deadline came first
refuses
  PRESENT    the version in memory: it is there; do what was wanted by the ordinary call
  UNKNOWN    it was not evicted
  NEWER      the version that was evicted: what SQL gave is older; read again from the primary
  OLDER      the version that was evicted: SQL is ahead; adopt what it holds
  TOO_MANY_SWITCHES  it has switches_max of them
  UNDOING    it is there again, but undoes already: no cancel changes that
]]
return each(function(item, state)
  local tx_id, version, fields, switches, then_do, name, value = read_item(item)
  local present = redis.call('HGET', state_key(tx_id), 'version')
  if present then return refuse('PRESENT', present) end
  local evicted = redis.call('HGET', evicted_key, tx_id)
  if not evicted then return refuse('UNKNOWN') end
  if version < tonumber(evicted) then return refuse('NEWER', evicted) end
  if version > tonumber(evicted) then return refuse('OLDER', evicted) end
  redis.call('HSET', state_key(tx_id), 'state', state, unpack(fields))
  if #switches > 0 then redis.call('HSET', switches_key(tx_id), unpack(switches)) end
  redis.call('HDEL', evicted_key, tx_id)
  local tx = load_sleeper(tx_id)
  local wakes_at = redis.call('HGET', state_key(tx_id), 'wakes_at')
  wakes_at = wakes_at and tonumber(wakes_at) or math.huge
  if tx.deadline ~= '' and not has(tx.undoing) then wakes_at = math.min(wakes_at, tonumber(tx.deadline)) end
  redis.call('ZADD', sleeping_key, wakes_at == math.huge and '+inf' or wakes_at, tx_id)
  redis.call('ZADD', to_archive_key, now + evict_after_ms, tx_id)
  redis.call('ZADD', started_key, redis.call('HGET', state_key(tx_id), 'started_at'), tx_id)
  if then_do == 'due' then
    if tx.deadline ~= '' and tonumber(tx.deadline) <= now and not has(tx.undoing) then
      apply_verdict(tx_id, 'timeout', 'the deadline passed', cancel_grace_ms, true)
      return {'TIMEOUT'}
    end
    return {'WOKEN', wake(tx_id, tx, 'time')}
  elseif then_do == 'wake' then
    return {'WOKEN', wake(tx_id, tx, 'operator')}
  elseif then_do == 'switch' then
    return put_switch(tx_id, tx, name, value, switches_max)
  elseif then_do == 'cancel' then
    return apply_verdict(tx_id, 'cancelled', name, cancel_grace_ms, false)
  end
  return {'OK', tx.version}
end)
