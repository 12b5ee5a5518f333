--[[
webhook: what is owed to a client is a record of its own, made with the change that it tells about (decision 11).

A transaction has one chain of them, and only the first is tried; what comes later waits for it, so that two never
overtake. What is newer replaces what still waits, unless the client wants each report, in order.

includes
  queue
reads
  state
  reasons
writes
  webhook
  webhook_chain
  webhooks
]]
local CHAIN_MAX = 1000
local COMPLETED = 'transaction.completed'
local TOLD = {'webhook', 'owner', 'external_id', 'type', 'pipeline_version', 'phase', 'status', 'undoing', 'progress',
  'output', 'note', 'started_at', 'sequence'}

-- The words are those of encode_webhook; a URL holds no quotation marks.
local function wants_each(webhook)
  return string.find(webhook, '"progress":"all"', 1, true)
end

local function wants_statuses(webhook)
  return string.find(webhook, '"status":true', 1, true)
end

local function put_first(tx_id, record, due)
  redis.call('DEL', webhook_key(tx_id))
  redis.call('HSET', webhook_key(tx_id), unpack(record))
  redis.call('ZADD', webhooks_key, due, tx_id)
end

-- The next of the chain is the first now; false when there is none. An end begins anew, and at once; a report goes on
-- where the one before it was: a receiver in trouble doesn't get well because there is more to tell.
local function owe_next(tx_id, attempt, due)
  local packed = redis.call('LPOP', webhook_chain_key(tx_id))
  if not packed then return false end
  local record = cmsgpack.unpack(packed)
  local is_end = record[2] == COMPLETED
  put_first(tx_id, record, is_end and now or due)
  if not is_end then redis.call('HSET', webhook_key(tx_id), 'attempt', attempt) end
  return true
end

local function record_of(tx_id, kind)
  local values = redis.call('HMGET', state_key(tx_id), unpack(TOLD))
  local record = {'kind', kind, 'attempt', 0}
  for place, name in ipairs(TOLD) do
    record[#record + 1] = name
    record[#record + 1] = values[place] or ''
  end
  if values[6] == 'exception' then
    record[#record + 1] = 'reason'
    record[#record + 1] = redis.call('HGET', reasons_key, tx_id) or ''
  end
  return record, values[1]
end

local is_owed_now = false

local function owe_webhook(tx_id, kind)
  local record, webhook = record_of(tx_id, kind)
  local first, claim, attempt = unpack(redis.call('HMGET', webhook_key(tx_id), 'kind', 'claim', 'attempt'))
  if first and wants_each(webhook) then
    local chain = webhook_chain_key(tx_id)
    if redis.call('LLEN', chain) < CHAIN_MAX then
      redis.call('RPUSH', chain, cmsgpack.pack(record))
    else
      redis.call('LSET', chain, -1, cmsgpack.pack(record))
    end
  elseif has(claim) then
    redis.call('DEL', webhook_chain_key(tx_id))
    redis.call('RPUSH', webhook_chain_key(tx_id), cmsgpack.pack(record))
  elseif first and attempt ~= '0' and kind ~= COMPLETED then
    put_first(tx_id, record, redis.call('ZSCORE', webhooks_key, tx_id))
    redis.call('HSET', webhook_key(tx_id), 'attempt', attempt)
  else
    put_first(tx_id, record, now)
    is_owed_now = true
  end
end

at_end[#at_end + 1] = function()
  -- No node group has this name: they begin with a letter or a digit.
  if is_owed_now then ring(':webhooks') end
end
