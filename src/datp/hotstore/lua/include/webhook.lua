--[[
webhook: a delivery that is owed is a record of its own, made with the change that it tells about (decision 11).

reads
  state
writes
  webhook
  webhooks
]]
local TOLD = {'webhook', 'owner', 'external_id', 'type', 'pipeline_version', 'phase', 'status', 'undoing', 'progress',
  'output', 'note', 'started_at', 'sequence'}

-- A newer report replaces one that still waits; one that is being sent keeps its time, so that two never overtake.
local function owe_webhook(tx_id, kind)
  local values = redis.call('HMGET', state_key(tx_id), unpack(TOLD))
  local record = {'kind', kind, 'attempt', 0}
  for place, name in ipairs(TOLD) do
    record[#record + 1] = name
    record[#record + 1] = values[place] or ''
  end
  redis.call('HSET', webhook_key(tx_id), unpack(record))
  if redis.call('HEXISTS', webhook_key(tx_id), 'claimed') == 0 then
    redis.call('ZADD', webhooks_key, now, tx_id)
  end
end
