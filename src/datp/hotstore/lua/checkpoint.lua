#!lua flags=allow-oom
--[[
checkpoint: a running transaction's state is stored, so that a rerun goes on from there; the run goes on too.

includes
  run
writes
  state
  to_archive
  deadlines
items
  tx_id
  token
  event      where a rerun goes on, JSON
  undo_group where undoing would begin, or '' when there is nothing to undo
  undoing    the status that undo has begun with, or ''
bodies
  state      the document
returns
  OK         version
  VERDICT    status, note
refuses
  NO_STATE     there is no such state
  STALE_TOKEN  somebody else runs it, or nobody
]]
return each(function(item, state)
  local tx_id, token, event, undo_group, undoing = read_item(item)
  local refused, run = open_run(tx_id, token)
  if refused then return refused end
  local verdict = verdict_against(run, undoing)
  if verdict then return verdict end
  local version = next_version(run.version)
  if run.joined == '1' then redis.call('DEL', join_key(tx_id)) end
  redis.call('HSET', state_key(tx_id), 'event', event, 'version', version, 'losses', 0, 'undo_group', undo_group,
    'undoing', undoing, 'woken', '', 'joined', '', 'state', state)
  if undoing ~= '' then
    redis.call('HSET', state_key(tx_id), 'sequence', version)
    remove(deadlines_key, tx_id)
  end
  add(to_archive_key, now, tx_id)
  return {'OK', version}
end)
