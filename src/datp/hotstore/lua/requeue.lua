#!lua flags=allow-oom
--[[
requeue: a run ends in a queue: a child pipeline starts, a pipeline returns to its caller, an undo moves on.

includes
  run
  queue
  telling
writes
  state
  deadlines
  to_archive
items
  tx_id
  token
  queue      in or out
  group      whose queue
  event      what is to be done, JSON
  undo_group where undoing would begin, or '' when there is nothing to undo
  undoing    the status that undo has begun with, or ''
  snapshot   1 to have this state archived too
bodies
  state      the document
returns
  OK         version
  ALREADY    what the same call answered before
  VERDICT    status, note
refuses
  NO_STATE     there is no such state
  STALE_TOKEN  somebody else runs it, or nobody
]]
return each(function(item, state)
  local tx_id, token, queue, group, event, undo_group, undoing, snapshot = read_item(item)
  local refused, run = open_run(tx_id, token)
  if refused then return refused end
  local verdict = verdict_against(run, undoing)
  if verdict then return verdict end
  local version = next_version(run.version)
  close_run(tx_id, run)
  redis.call('HSET', state_key(tx_id), 'phase', 'queued', 'queue', queue, 'group', group, 'event', event,
    'version', version, 'sequence', version, 'token', '', 'ended', ended_by(token, 'OK', version), 'losses', 0,
    'undo_group', undo_group, 'undoing', undoing, 'woken', '', 'joined', '', 'state', state)
  if undoing ~= '' then remove(deadlines_key, tx_id) end
  if snapshot == 1 then add(to_archive_key, now, tx_id) end
  push(queue, group, tx_id)
  local parent, webhook = unpack(redis.call('HMGET', state_key(tx_id), 'parent', 'webhook'))
  if not parent then tell_change(tx_id, webhook, 'queued', version) end
  return {'OK', version}
end)
