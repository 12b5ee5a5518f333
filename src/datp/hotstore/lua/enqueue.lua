#!lua
--[[
enqueue: transactions start; each is in its queue, with its state, and its externalId is taken.

includes
  batch
  count
  queue
reads
  evicted
writes
  state
  external_id
  idempotent
  deadlines
  started
args
  idempotency_period_ms  how long an Idempotency-Key is kept
items
  tx_id             made by the caller; the same again is ALREADY
  owner             who starts it
  external_id       the client's own id, or ''
  request_hash      of the whole request: the same externalId with the same request is a repetition
  type              the transaction type, which is a pipeline's name
  pipeline_version  the version that is pinned
  group             the node group whose queue it joins
  deadline_in_ms    how long it may take in all; 0: for ever
  webhook           who is told, JSON, or ''
  durability        hot, snapshot or journal
  idempotency   the caller's key for this very request, or '': as an externalId, in a name space of its own
bodies
  state             the document
returns
  OK                version
  ALREADY           version; this txId was started before
  DUPLICATE         the txId that the same request started
refuses
  IDEMPOTENCY_KEY_TAKEN  the txId that a different request started with this Idempotency-Key
  EXTERNAL_ID_TAKEN  the txId that a different request started with this externalId
  FULL               until when the store's memory budget keeps it from starting anything new
]]
-- Asked once per call: an id that was evicted may be started again only by a very late repetition.
local NOTHING_MORE = {}
local any_evicted = redis.call('HLEN', evicted_key) > 0
local full_until = tonumber(redis.call('HGET', meta_key, 'full_until') or 0)

-- What somebody who has the id or key already gets; nil when nobody has.
local function taken(name, request_hash, refusal)
  local stored = redis.call('GET', name)
  if not stored then return nil end
  local first, first_hash = string.match(stored, '^(%S+) (%S*)$')
  if first_hash == request_hash then return {'DUPLICATE', first} end
  return refuse(refusal, first)
end

return each(function(item, state)
  local tx_id, owner, external_id, request_hash, type, pipeline_version, group, deadline_in_ms, webhook, durability,
    idempotency = read_item(item)
  local version = redis.call('HGET', state_key(tx_id), 'version')
    or any_evicted and redis.call('HGET', evicted_key, tx_id)
  if version then return {'ALREADY', version} end
  -- What is wrong with an item raises here, before anything is written.
  local counter = 'started|' .. owner .. '|' .. type .. '|' .. group
  local _ = request_hash .. pipeline_version .. webhook .. durability
  local ends_at = deadline_in_ms > 0 and now + deadline_in_ms
  if external_id ~= '' then
    local result = taken(external_id_key(owner, external_id), request_hash, 'EXTERNAL_ID_TAKEN')
    if result then return result end
  end
  if idempotency ~= '' then
    local result = taken(idempotent_key(owner, idempotency), request_hash, 'IDEMPOTENCY_KEY_TAKEN')
    if result then return result end
  end
  if full_until > now then return refuse('FULL', text_of(full_until)) end
  local more = NOTHING_MORE
  if webhook ~= '' or external_id ~= '' or deadline_in_ms > 0 or durability ~= 'hot' then
    more = {'durability', durability, 'webhook', webhook, 'external_id', external_id, 'request_hash', request_hash}
    if deadline_in_ms > 0 then
      more[#more + 1] = 'deadline'
      more[#more + 1] = now + deadline_in_ms
    end
  end
  -- One command: whatever could be wrong with the item raises here, before anything is written.
  redis.call('HSET', state_key(tx_id), 'phase', 'queued', 'queue', 'in', 'group', group,
    'event', '{"kind":"start","at":0}', 'version', now, 'sequence', now, 'started_at', now, 'owner', owner, 'type', type,
    'pipeline_version', pipeline_version, 'state', state, unpack(more))
  if deadline_in_ms > 0 then add(deadlines_key, now + deadline_in_ms, tx_id) end
  if external_id ~= '' then redis.call('SET', external_id_key(owner, external_id), tx_id .. ' ' .. request_hash) end
  if idempotency ~= '' then
    redis.call('SET', idempotent_key(owner, idempotency), tx_id .. ' ' .. request_hash, 'PX', idempotency_period_ms)
  end
  add(started_key, now, tx_id)
  push('in', group, tx_id)
  count(counter)
  return {'OK', now}
end)
