#!lua
--[[
wake: an operator wakes sleepers and waiters now.

includes
  waking
reads
  evicted
items
  tx_id
returns
  WOKEN       version
refuses
  NO_STATE    there is no such state
  EVICTED     the version that SQL holds: restore it, and wake it in the same call
  NOT_ASLEEP  its phase
]]
return each(function(item)
  local tx_id = read_item(item)
  local tx = load_sleeper(tx_id)
  if not tx then
    local version = redis.call('HGET', evicted_key, tx_id)
    if version then return refuse('EVICTED', version) end
    return refuse('NO_STATE')
  end
  if tx.phase ~= 'sleeping' and tx.phase ~= 'waiting' then return refuse('NOT_ASLEEP', tx.phase) end
  return {'WOKEN', wake(tx_id, tx, 'operator')}
end)
