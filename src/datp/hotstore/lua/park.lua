#!lua flags=allow-oom
--[[
park: a run ends on the exception list, with the reason; an operator decides.

includes
  run
  parking
writes
  state
items
  tx_id
  token
  reason     a sentence for the operator
  event      where a retry goes on, JSON; '' keeps the stored one
  undo_group where undoing would begin, or '' when there is nothing to undo; counts with a document only
  undoing    the status that undo has begun with, or ''
bodies
  state      the document; '' keeps the stored one
returns
  OK         version
  ALREADY    what the same call answered before
  VERDICT    status, note
refuses
  NO_STATE     there is no such state
  STALE_TOKEN  somebody else runs it, or nobody
]]
return each(function(item, state)
  local tx_id, token, reason, event, undo_group, undoing = read_item(item)
  local refused, run = open_run(tx_id, token)
  if refused then return refused end
  local verdict = state ~= '' and verdict_against(run, undoing)
  if verdict then return verdict end
  -- A run that stores nothing leaves what it was given, for the one that a retry begins.
  if state == '' then run.joined = '' end
  close_run(tx_id, run)
  if undoing ~= '' then
    redis.call('HSET', state_key(tx_id), 'undoing', undoing)
    redis.call('ZREM', deadlines_key, tx_id)
  end
  local version = park(tx_id, reason, 'running')
  local fields = {'ended', ended_by(token, 'OK', version), 'losses', 0}
  local function also(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if event ~= '' then also('event', event) end
  if state ~= '' then
    also('state', state)
    also('woken', '')
    also('joined', '')
    also('undo_group', undo_group)
  end
  redis.call('HSET', state_key(tx_id), unpack(fields))
  return {'OK', version}
end)
