#!lua flags=allow-oom
--[[
next_to_archive: what SQL has stored is acknowledged, and the next states are claimed, by one archiver at a time.

An acknowledgement names the version that was stored: only that one is unmarked, given its TTL, or evicted; and where
the client is told only what SQL holds, it is told now.

includes
  batch
  parking
  telling
reads
  join
  webhook
writes
  state
  switches
  evicted
  to_archive
  started
  archive_lock1
  archive_lock2
args
  node              who asks
  want              how many at the most; 0: this was the last call, the role is given up
  archive_lock1_ms  how long this node is given states without asking again
  archive_lock2_ms  how long nobody else is given any
  archive_claim_ms  when a claim that was never acknowledged is due again
  state_ttl_ms      how long a final state stays after it was archived or read
items
  tx_id
  version    the version that SQL stored
  evict      1: a sleeper may leave memory now
returns
  1 if this node has the role; a result per acknowledgement; and of each claimed: tx_id, version, fields, switches,
  join, 1 if a webhook is owed
  OK         unmarked; a final one has its TTL
  EVICTED    the sleeper has left memory
  CHANGED    it has a newer version, which stays marked
  GONE       there is no such state
]]
local acknowledged = each(function(item)
  local tx_id, version, evict = read_item(item)
  local phase, stored, parent, untold, status, webhook = unpack(redis.call(
    'HMGET', state_key(tx_id), 'phase', 'version', 'parent', 'untold', 'status', 'webhook'))
  if not phase then
    redis.call('ZREM', to_archive_key, tx_id)
    redis.call('ZREM', started_key, tx_id)
    return {'GONE'}
  end
  if tonumber(stored) ~= version then
    if redis.call('ZSCORE', to_archive_key, tx_id) then redis.call('ZADD', to_archive_key, now, tx_id) end
    return {'CHANGED', stored}
  end
  remove(to_archive_key, tx_id)
  if phase == 'complete' then
    redis.call('PEXPIRE', state_key(tx_id), state_ttl_ms)
    remove(started_key, tx_id)
    if has(untold) then
      redis.call('HSET', state_key(tx_id), 'untold', '', 'sequence', stored)
      tell_end(tx_id, webhook, status, stored)
    end
  elseif (phase == 'sleeping' or phase == 'waiting') and evict == 1 and not parent then
    redis.call('DEL', state_key(tx_id), switches_key(tx_id))
    redis.call('HSET', evicted_key, tx_id, stored)
    remove(started_key, tx_id)
    return {'EVICTED'}
  end
  return {'OK'}
end)

local function holder(key)
  local name, ends = string.match(redis.call('GET', key) or '', '^(%S+) (%d+)$')
  if ends and tonumber(ends) > now then return name end
end
local function hold(key, ms)
  redis.call('SET', key, node .. ' ' .. string.format('%.0f', now + ms), 'PX', ms + 60000)
end

-- Its version, its fields, and what stands beside it where the fields say that something may.
local function read_whole(tx_id)
  local fields = redis.call('HGETALL', state_key(tx_id))
  local version, phase, is_joined, has_switches, has_webhook
  for index = 1, #fields, 2 do
    local name, value = fields[index], fields[index + 1]
    if name == 'version' then version = value
    elseif name == 'phase' then phase = value
    elseif name == 'joined' then is_joined = value == '1'
    elseif name == 'switches' then has_switches = value == '1'
    elseif name == 'webhook' then has_webhook = value ~= '' end
  end
  local function beside(key)
    local found = redis.pcall('HGETALL', key)
    return found.err and {} or found
  end
  return version, fields, has_switches and beside(switches_key(tx_id)) or {},
    (is_joined or phase == 'joining') and beside(join_key(tx_id)) or {},
    has_webhook and redis.call('EXISTS', webhook_key(tx_id)) or 0
end

local first, second = holder(archive_lock1_key), holder(archive_lock2_key)
local granted = first == node or (not first and not second)
local claimed = {}
if want == 0 then
  if first == node or second == node then redis.call('DEL', archive_lock1_key, archive_lock2_key) end
  granted = false
elseif granted then
  hold(archive_lock1_key, archive_lock1_ms)
  hold(archive_lock2_key, archive_lock2_ms)
  local claims = {}
  for _, tx_id in ipairs(redis.call('ZRANGEBYSCORE', to_archive_key, '-inf', now, 'LIMIT', 0, want)) do
    local fine, version, fields, switches, join_fields, owed = pcall(read_whole, tx_id)
    if not fine then
      -- Otherwise it would come first, and raise, every time.
      redis.call('ZREM', to_archive_key, tx_id)
      park(tx_id, 'it can\'t be archived: its state can\'t be read', 'to_archive')
    elseif version then
      claims[#claims + 1] = now + archive_claim_ms
      claims[#claims + 1] = tx_id
      claimed[#claimed + 1] = {tx_id, version, fields, switches, join_fields, owed}
    else
      redis.call('ZREM', to_archive_key, tx_id)
    end
  end
  in_pieces(claims, function(...) redis.call('ZADD', to_archive_key, ...) end)
end
return {granted and 1 or 0, acknowledged, claimed}
