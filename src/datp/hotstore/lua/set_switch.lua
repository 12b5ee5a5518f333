#!lua
--[[
set_switch: a switch has a new value, and a transaction that waits for it goes on.

includes
  switching
reads
  evicted
args
  switches_max  how many switches a transaction may have
items
  tx_id
  name       any characters
  value      JSON; '' deletes the switch
returns
  OK         version: it was set
  WOKEN      version: it was set, and the transaction goes on
  SAME       it had this value already; nothing changed
refuses
  NO_STATE           there is no such transaction in the hot store
  EVICTED            the version that SQL holds: restore it, and set the switch in the same call
  FINAL              the transaction has ended
  TOO_MANY_SWITCHES  it has switches_max of them
]]
-- One that is not told yet is not told here either.
local function final_status(tx_id)
  local status, untold = unpack(redis.call('HMGET', state_key(tx_id), 'status', 'untold'))
  return has(untold) and '' or status
end

return each(function(item)
  local tx_id, name, value = read_item(item)
  local tx = load_sleeper(tx_id)
  if not tx then
    local evicted_version = redis.call('HGET', evicted_key, tx_id)
    if evicted_version then return refuse('EVICTED', evicted_version) end
    return refuse('NO_STATE')
  end
  if tx.phase == 'complete' then return refuse('FINAL', final_status(tx_id)) end
  return put_switch(tx_id, tx, name, value, switches_max)
end)
