#!lua flags=allow-oom
--[[
next_webhooks: what was tried is acknowledged, and the next deliveries are claimed, by any number of senders.

writes
  webhook
  webhooks
args
  want              how many at the most
  webhook_claim_ms  longer than a sender waits for an answer
items
  tx_id
  sequence     of what was sent; a newer record that came meanwhile stays
  result       delivered, retry, moved (to SQL) or given_up
  retry_in_ms  when it is tried again
  comment      what the receiver said
returns
  a result per acknowledgement; and of each claimed: tx_id, the record's fields (name, value, …)
  OK         it is done with, or will be tried again
  REPLACED   a newer record is due now
  GONE       there is no such record
]]
local acknowledged = each(function(item)
  local tx_id, sequence, result, retry_in_ms, comment = read_item(item)
  local stored = redis.call('HGET', webhook_key(tx_id), 'sequence')
  if not stored then
    redis.call('ZREM', webhooks_key, tx_id)
    return {'GONE'}
  end
  redis.call('HDEL', webhook_key(tx_id), 'claimed')
  if tonumber(stored) ~= sequence then
    redis.call('HSET', webhook_key(tx_id), 'attempt', 0)
    redis.call('ZADD', webhooks_key, now, tx_id)
    return {'REPLACED', stored}
  end
  if result == 'retry' then
    redis.call('HINCRBY', webhook_key(tx_id), 'attempt', 1)
    redis.call('HSET', webhook_key(tx_id), 'comment', comment)
    redis.call('ZADD', webhooks_key, now + retry_in_ms, tx_id)
  else
    redis.call('DEL', webhook_key(tx_id))
    redis.call('ZREM', webhooks_key, tx_id)
  end
  return {'OK'}
end)
local claimed = {}
if want > 0 then
  for _, tx_id in ipairs(redis.call('ZRANGEBYSCORE', webhooks_key, '-inf', now, 'LIMIT', 0, want)) do
    if redis.call('TYPE', webhook_key(tx_id)).ok == 'hash' then
      redis.call('HSET', webhook_key(tx_id), 'claimed', now + webhook_claim_ms)
      redis.call('ZADD', webhooks_key, now + webhook_claim_ms, tx_id)
      claimed[#claimed + 1] = {tx_id, redis.call('HGETALL', webhook_key(tx_id))}
    else
      redis.call('ZREM', webhooks_key, tx_id)
    end
  end
end
return {acknowledged, claimed}
