#!lua
--[[
claim_idempotency_key: a start that has an externalId too takes its Idempotency-Key, which lives in another partition.

writes
  idempotent
args
  idempotency_period_ms
items
  owner
  idempotency
  request_hash
  tx_id            of the transaction that is about to start
returns
  OK               it is taken, and names that transaction
  DUPLICATE        the txId that the same request named before
refuses
  IDEMPOTENCY_KEY_TAKEN  the txId that a different request named
]]
return each(function(item)
  local owner, idempotency, request_hash, tx_id = read_item(item)
  local name = idempotent_key(owner, idempotency)
  local stored = redis.call('GET', name)
  if stored then
    local first, first_hash = string.match(stored, '^(%S+) (%S*)$')
    if first_hash == request_hash then return {'DUPLICATE', first} end
    return refuse('IDEMPOTENCY_KEY_TAKEN', first)
  end
  redis.call('SET', name, tx_id .. ' ' .. request_hash, 'PX', idempotency_period_ms)
  return {'OK'}
end)
