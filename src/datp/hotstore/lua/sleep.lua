#!lua flags=allow-oom
--[[
sleep: a run ends asleep, or waiting for a switch; if the switch differs from what was seen, it is queued at once.

includes
  run
  waking
reads
  switches
writes
  state
  sleeping
  deadlines
  to_archive
args
  evict_after_ms  how long it stays in memory
items
  tx_id
  token
  wake_in_ms  -1: only the switch, the deadline or an operator wakes it
  switch      the switch that it waits for, or ''
  seen        that switch's version as the step saw it, '' for none
  group       where it goes on
  event       what is to be done then, JSON
  note        why it sleeps, or ''
  undo_group  where undoing would begin, or '' when there is nothing to undo
  undoing     the status that undo has begun with, or ''
bodies
  state       the document
returns
  OK          version
  WOKEN       version: the switch had changed already
  ALREADY     what the same call answered before
  VERDICT     status, note
refuses
  NO_STATE     there is no such state
  STALE_TOKEN  somebody else runs it, or nobody
]]
-- As memory fills, they leave it sooner.
local percent, until_ms = unpack(redis.call('HMGET', meta_key, 'evict_percent', 'evict_until'))
if tonumber(until_ms or 0) > now then evict_after_ms = math.floor(evict_after_ms * percent / 100) end
return each(function(item, state)
  local tx_id, token, wake_in_ms, switch, seen, group, event, note, undo_group, undoing = read_item(item)
  local refused, run = open_run(tx_id, token)
  if refused then return refused end
  local verdict = verdict_against(run, undoing)
  if verdict then return verdict end
  local version = next_version(run.version)
  close_run(tx_id, run)
  local waits = switch ~= ''
  local deadline, parent, webhook = unpack(redis.call('HMGET', state_key(tx_id), 'deadline', 'parent', 'webhook'))
  redis.call('HSET', state_key(tx_id), 'phase', waits and 'waiting' or 'sleeping', 'group', group, 'event', event,
    'version', version, 'sequence', version, 'token', '', 'ended', ended_by(token, 'OK', version), 'losses', 0,
    'wake_switch', switch, 'note', note, 'undo_group', undo_group, 'undoing', undoing, 'woken', '',
    'joined', '', 'state', state)
  if undoing ~= '' or not deadline then deadline = '' end
  if undoing ~= '' then remove(deadlines_key, tx_id) end
  if waits then
    local stored = redis.call('HGET', switches_key(tx_id), switch)
    if (stored and string.match(stored, '^%S+') or '') ~= seen then
      local tx = load_sleeper(tx_id)
      version = wake(tx_id, tx, 'switch')
      redis.call('HSET', state_key(tx_id), 'ended', ended_by(token, 'WOKEN', version))
      return {'WOKEN', version}
    end
  end
  local wakes_at = wake_in_ms >= 0 and now + wake_in_ms or math.huge
  redis.call('HSET', state_key(tx_id), 'wakes_at', wakes_at == math.huge and '' or wakes_at)
  if deadline ~= '' then
    wakes_at = math.min(wakes_at, tonumber(deadline))
    remove(deadlines_key, tx_id)
  end
  add(sleeping_key, wakes_at == math.huge and '+inf' or wakes_at, tx_id)
  -- A branch stays in memory with its parent, which does too; a snapshot of it is still archived.
  add(to_archive_key, now + evict_after_ms, tx_id)
  if not parent then tell_change(tx_id, webhook, waits and 'waiting' or 'sleeping', version) end
  return {'OK', version}
end)
