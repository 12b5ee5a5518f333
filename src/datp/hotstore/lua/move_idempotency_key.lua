#!lua
--[[
move_idempotency_key: an Idempotency-Key that was just claimed names the transaction that there is, or nobody's any more.

writes
  idempotent
args
  idempotency_period_ms
items
  owner
  idempotency
  request_hash
  claimed_for      the txId that it must still name
  tx_id            what it names from now on; '': it is free again
returns
  OK               it is so
refuses
  IDEMPOTENCY_KEY_TAKEN  what it names by now
]]
return each(function(item)
  local owner, idempotency, request_hash, claimed_for, tx_id = read_item(item)
  local name = idempotent_key(owner, idempotency)
  local stored = redis.call('GET', name) or ''
  if stored ~= claimed_for .. ' ' .. request_hash then return refuse('IDEMPOTENCY_KEY_TAKEN', stored) end
  if tx_id == '' then
    redis.call('DEL', name)
  else
    redis.call('SET', name, tx_id .. ' ' .. request_hash, 'PX', idempotency_period_ms)
  end
  return {'OK'}
end)
