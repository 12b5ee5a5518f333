#!lua
--[[
adopt: what SQL holds replaces what the store has, because SQL is ahead: the store lost writes, or everything.

includes
  queue
  telling
writes
  state
  switches
  join
  joining
  evicted
  processing
  running
  sleeping
  deadlines
  exceptions
  reasons
  to_archive
  started
  external_id
args
  external_id_period_ms
  state_ttl_ms
  evict_after_ms
items
  tx_id
  version    the version that SQL holds
  fields     name, value, … as they were archived, without the document
  switches   name, value, …
  join       name, value, …
  phase      where it was
  queue      in or out: where it goes on if it was queued or running
  group      whose queue
  deadline   0 for none
  wakes_at   0 for none
  owed       1: its end was never told by webhook
bodies
  state      the document
returns
  OK         version
refuses
  OLDER      the version in the store, which is not older
]]
return each(function(item, state)
  local tx_id, version, fields, switches, join, phase, queue, group, deadline, wakes_at, owed = read_item(item)
  local old_phase, old_version, old_queue, old_group =
    unpack(redis.call('HMGET', state_key(tx_id), 'phase', 'version', 'queue', 'group'))
  local held = old_version or redis.call('HGET', evicted_key, tx_id)
  if held and tonumber(held) >= version then return refuse('OLDER', held) end
  if old_phase == 'queued' and old_queue and old_group then withdraw(old_queue, old_group, tx_id) end
  for _, key in ipairs({processing_key, running_key, sleeping_key, joining_key, deadlines_key, exceptions_key,
    to_archive_key, started_key}) do
    redis.call('ZREM', key, tx_id)
  end
  redis.call('HDEL', reasons_key, tx_id)
  redis.call('HDEL', evicted_key, tx_id)
  redis.call('DEL', state_key(tx_id), switches_key(tx_id), join_key(tx_id))
  redis.call('HSET', state_key(tx_id), 'state', state, unpack(fields))
  redis.call('HSET', state_key(tx_id), 'token', '', 'ended', '', 'version', version)
  if #switches > 0 then redis.call('HSET', switches_key(tx_id), unpack(switches)) end
  if #join > 0 then redis.call('HSET', join_key(tx_id), unpack(join)) end
  local owner, external_id, request_hash, undoing, verdict, parent, started_at = unpack(redis.call(
    'HMGET', state_key(tx_id), 'owner', 'external_id', 'request_hash', 'undoing', 'verdict', 'parent', 'started_at'))
  if external_id and external_id ~= '' then
    local key = external_id_key(owner, external_id)
    redis.call('SET', key, tx_id .. ' ' .. (request_hash or ''), 'NX')
    -- A later transaction may have the externalId by now; its key is left as it is.
    if string.match(redis.call('GET', key), '^%S+') == tx_id then
      if phase == 'complete' then redis.call('PEXPIRE', key, external_id_period_ms) else redis.call('PERSIST', key) end
    end
  end
  if phase == 'complete' then
    redis.call('PEXPIRE', state_key(tx_id), state_ttl_ms)
    local status, webhook = unpack(redis.call('HMGET', state_key(tx_id), 'status', 'webhook'))
    tell_end(tx_id, owed == 1 and webhook, status, version)
    return {'OK', version}
  end
  if not parent then redis.call('ZADD', started_key, started_at, tx_id) end
  if phase == 'sleeping' or phase == 'waiting' then
    local due = wakes_at > 0 and wakes_at or math.huge
    if deadline > 0 and not has(undoing) then due = math.min(due, deadline) end
    redis.call('ZADD', sleeping_key, due == math.huge and '+inf' or due, tx_id)
    if not parent then redis.call('ZADD', to_archive_key, now + evict_after_ms, tx_id) end
  end
  if not has(undoing) and has(verdict) then
    redis.call('ZADD', deadlines_key, now, tx_id)
  elseif not has(undoing) and deadline > 0 and phase ~= 'sleeping' and phase ~= 'waiting' then
    redis.call('ZADD', deadlines_key, deadline, tx_id)
  end
  if phase == 'sleeping' or phase == 'waiting' then return {'OK', version} end
  if phase == 'joining' then
    redis.call('ZADD', joining_key, now, tx_id)
  elseif phase == 'exception' then
    redis.call('ZADD', exceptions_key, now, tx_id)
    redis.call('HSET', reasons_key, tx_id, cjson.encode({reason = 'it was parked before the store was lost', from = 'SQL', at = now}))
  else
    redis.call('HSET', state_key(tx_id), 'phase', 'queued', 'queue', queue, 'group', group)
    push(queue, group, tx_id)
  end
  return {'OK', version}
end)
