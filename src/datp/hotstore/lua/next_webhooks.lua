#!lua flags=allow-oom
--[[
next_webhooks: what was tried is acknowledged, and the next deliveries are claimed, by any number of senders.

includes
  webhook
  told
writes
  webhook
  webhook_chain
  webhooks
args
  want               how many at the most
  claim_as           the claim's name, of this call alone; acknowledgements name it
  webhook_claim_ms   longer than a sender waits for an answer
  webhook_parked_ms  how long one that was given up is kept here, where there is no SQL
items
  tx_id
  claim        under which it was sent; if that ran out, somebody else sends it now
  result       delivered, retry, postponed (it was not tried), moved (to SQL), parked or given_up
  retry_in_ms  when it is tried again
  comment      what the receiver said
returns
  now, when the next is due ('' for none), a result per acknowledgement; and of each claimed: tx_id, the record's
  fields (name, value, …)
  OK         it is done with, or will be tried again; 1 if the state has left memory, and SQL must be told
  REPLACED   what came after it is the first now
  STALE      the claim ran out, and this counts for nothing
  GONE       there is no such record
]]
local WAITS = {retry = 1, postponed = 1}
local acknowledged = each(function(item)
  local tx_id, claim, result, retry_in_ms, comment = read_item(item)
  local held, kind, webhook = unpack(redis.call('HMGET', webhook_key(tx_id), 'claim', 'kind', 'webhook'))
  if not kind then
    redis.call('ZREM', webhooks_key, tx_id)
    return {'GONE'}
  end
  if held ~= claim then return {'STALE', held or ''} end
  redis.call('HDEL', webhook_key(tx_id), 'claim', 'forced')
  if comment ~= '' then redis.call('HSET', webhook_key(tx_id), 'comment', comment) end
  local tried = (result == 'retry' or result == 'parked') and 1 or 0
  local attempt = redis.call('HINCRBY', webhook_key(tx_id), 'attempt', tried)
  if WAITS[result] then
    if not wants_each(webhook) and owe_next(tx_id, attempt, now + retry_in_ms) then return {'REPLACED'} end
    redis.call('ZADD', webhooks_key, now + retry_in_ms, tx_id)
    return {'OK'}
  end
  if result == 'parked' then
    redis.call('HSET', webhook_key(tx_id), 'parked', '1')
    redis.call('ZADD', webhooks_key, now + webhook_parked_ms, tx_id)
    return {'OK'}
  end
  if owe_next(tx_id, 0, now) then return {'REPLACED'} end
  redis.call('DEL', webhook_key(tx_id))
  redis.call('ZREM', webhooks_key, tx_id)
  local is_gone = kind == COMPLETED and not mark_told(tx_id, result == 'delivered')
  return {'OK', is_gone and 1 or 0}
end)

local claimed = {}
local function claim_one(tx_id)
  local kind, was_claimed, parked, webhook =
    unpack(redis.call('HMGET', webhook_key(tx_id), 'kind', 'claim', 'parked', 'webhook'))
  if not kind or has(parked) then
    redis.call('DEL', webhook_key(tx_id), webhook_chain_key(tx_id))
    redis.call('ZREM', webhooks_key, tx_id)
    return
  end
  -- Its sender died; what came meanwhile replaces it.
  if has(was_claimed) and not wants_each(webhook) then owe_next(tx_id, 0, now) end
  redis.call('HSET', webhook_key(tx_id), 'claim', claim_as)
  redis.call('ZADD', webhooks_key, now + webhook_claim_ms, tx_id)
  claimed[#claimed + 1] = {tx_id, redis.call('HGETALL', webhook_key(tx_id))}
end
if want > 0 then
  for _, tx_id in ipairs(redis.call('ZRANGEBYSCORE', webhooks_key, '-inf', now, 'LIMIT', 0, want)) do
    -- One that can't be read would come first, and raise, every time.
    if not pcall(claim_one, tx_id) then
      redis.call('DEL', webhook_key(tx_id), webhook_chain_key(tx_id))
      redis.call('ZREM', webhooks_key, tx_id)
    end
  end
end
local next_due = redis.call('ZRANGE', webhooks_key, 0, 0, 'WITHSCORES')[2] or ''
return {now, next_due, acknowledged, claimed}
