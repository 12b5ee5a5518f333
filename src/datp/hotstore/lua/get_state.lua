#!lua flags=allow-oom
--[[
get_state: what the hot store knows of transactions; it never makes a state, and renews the TTL of a final one.

includes
  told
reads
  evicted
  switches
  processing
  running
  sleeping
  deadlines
  reasons
  join
writes
  state
  webhook
  webhook_chain
  webhooks
args
  state_ttl_ms   how long a final, archived state stays after it was read
  replied_to     the owner to whom a poll is about to reply, or '': an end sets notified_at, and cancels the webhook if asked
  whole          1: with the document, switches and places; 0: what a reply needs
items
  tx_id
returns
  OK         the fields (name, value, …), and when whole: switches, join, places (name, score, …), the parking reason
refuses
  NO_STATE   there is no such state
  EVICTED    the version that SQL holds
]]
local REPLY = {'owner', 'external_id', 'type', 'pipeline_version', 'phase', 'status', 'undoing', 'progress', 'output',
  'note', 'started_at', 'sequence', 'version', 'parent', 'wake_switch', 'notified_at', 'untold'}
local WHOLE = {'state', 'event', 'queue', 'group', 'token', 'losses', 'undo_group', 'verdict', 'verdict_note', 'deadline',
  'webhook', 'durability', 'woken', 'joined', 'request_hash', 'unarchivable'}

local function read_fields(tx_id, names, into)
  local values = redis.call('HMGET', state_key(tx_id), unpack(names))
  for place, name in ipairs(names) do
    if values[place] then
      into[#into + 1] = name
      into[#into + 1] = values[place]
    end
  end
  return into
end

return each(function(item)
  local tx_id = read_item(item)
  local phase, untold, webhook, owner =
    unpack(redis.call('HMGET', state_key(tx_id), 'phase', 'untold', 'webhook', 'owner'))
  if not phase then
    local version = redis.call('HGET', evicted_key, tx_id)
    if version then return refuse('EVICTED', version) end
    local reason = whole == 1 and redis.call('HGET', reasons_key, tx_id)
    if reason then return {'OK', {}, {}, {}, {}, reason} end
    return refuse('NO_STATE')
  end
  if phase == 'complete' and redis.call('PTTL', state_key(tx_id)) >= 0 then
    redis.call('PEXPIRE', state_key(tx_id), state_ttl_ms)
  end
  if replied_to ~= '' and replied_to == owner and phase == 'complete' and not has(untold) then
    redis.call('HSETNX', state_key(tx_id), 'notified_at', now)
    if webhook and webhook ~= '' and cjson.decode(webhook).pollCancels then
      if redis.call('DEL', webhook_key(tx_id), webhook_chain_key(tx_id)) > 0 then mark_told(tx_id, true) end
      redis.call('ZREM', webhooks_key, tx_id)
    end
  end
  local fields = read_fields(tx_id, REPLY, {})
  if whole ~= 1 then return {'OK', fields} end
  read_fields(tx_id, WHOLE, fields)
  local places = {}
  local function place(name, key)
    local score = redis.call('ZSCORE', key, tx_id)
    if score then
      places[#places + 1] = name
      places[#places + 1] = score
    end
  end
  place('processing', processing_key)
  place('running', running_key)
  place('sleeping', sleeping_key)
  place('deadline', deadlines_key)
  place('to_archive', to_archive_key)
  place('webhook', webhooks_key)
  return {'OK', fields, redis.call('HGETALL', switches_key(tx_id)), redis.call('HGETALL', join_key(tx_id)), places,
    redis.call('HGET', reasons_key, tx_id) or ''}
end)
