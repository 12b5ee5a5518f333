#!lua
--[[
resend_webhook: what is owed is tried now, from the first try on; of a transaction that has ended, the end is told again.

includes
  webhook
writes
  webhook
  webhooks
items
  tx_id
returns
  OK         it is due now
  SENDING    it is being sent this very moment
refuses
  NO_STATE    there is no such state, and nothing is owed
  NOT_ENDED   its phase: what it reported meanwhile is not told again
  NO_WEBHOOK  nobody asked to be told
]]
return each(function(item)
  local tx_id = read_item(item)
  local kind, claim = unpack(redis.call('HMGET', webhook_key(tx_id), 'kind', 'claim'))
  if has(claim) then return {'SENDING'} end
  if kind then
    redis.call('HDEL', webhook_key(tx_id), 'parked')
    redis.call('HSET', webhook_key(tx_id), 'attempt', 0, 'forced', 1)
    redis.call('ZADD', webhooks_key, now, tx_id)
    ring(':webhooks')
    return {'OK'}
  end
  local phase, webhook, untold = unpack(redis.call('HMGET', state_key(tx_id), 'phase', 'webhook', 'untold'))
  if not phase then return refuse('NO_STATE') end
  if not has(webhook) then return refuse('NO_WEBHOOK') end
  if phase ~= 'complete' or has(untold) then return refuse('NOT_ENDED', phase) end
  owe_webhook(tx_id, COMPLETED)
  redis.call('HSET', webhook_key(tx_id), 'forced', 1)
  return {'OK'}
end)
