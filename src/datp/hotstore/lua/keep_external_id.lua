#!lua
--[[
keep_external_id: an externalId of a transaction that has ended, and that SQL gave, is taken for the rest of its period.

writes
  external_id
items
  tx_id
  owner
  external_id
  request_hash
  keep_for_ms   the rest of the period
returns
  OK       it is taken, now or before
]]
return each(function(item)
  local tx_id, owner, external_id, request_hash, keep_for_ms = read_item(item)
  redis.call('SET', external_id_key(owner, external_id), tx_id .. ' ' .. request_hash, 'NX', 'PX', keep_for_ms)
  return {'OK'}
end)
