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
  undoable   1 when something was done that can be undone, else 0; -1 keeps what is stored
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
  local tx_id, token, reason, event, undoable, undoing = read_item(item)
  local refused, run = open_run(tx_id, token)
  if refused then return refused end
  local verdict = undoable >= 0 and verdict_against(run, undoing)
  if verdict then return verdict end
  -- A run that stores nothing leaves what it was given, for the one that a retry begins.
  if state == '' then run.joined = '' end
  close_run(tx_id, run)
  if undoing ~= '' then
    redis.call('HSET', state_key(tx_id), 'undoing', '1')
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
  end
  if undoable >= 0 then also('undoable', undoable) end
  redis.call('HSET', state_key(tx_id), unpack(fields))
  return {'OK', version}
end)
