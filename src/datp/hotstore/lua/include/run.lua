--[[
run: the right to write. A run holds a token from its dequeue until it is ended; the same end again is ALREADY.

includes
  batch
reads
  state
  evicted
writes
  processing
  running
  join
]]
-- Whether this token may write; what is answered if not.
local function token_refused(tx_id, token, phase, held, ended)
  if held == token and token ~= '' then return nil end
  if not phase then
    if redis.call('HEXISTS', evicted_key, tx_id) == 1 then return refuse('STALE_TOKEN', 'it was evicted') end
    return refuse('NO_STATE')
  end
  local ended_token, by, result = string.match(ended or '', '^(%S+) (%S+) (.*)$')
  if ended_token == token and by == SCRIPT then return {'ALREADY', result} end
  return refuse('STALE_TOKEN', 'it is ' .. phase)
end

-- The fields that every end of a run needs; or what is refused.
local function open_run(tx_id, token)
  local phase, held, ended, version, verdict, verdict_note, undoing, joined = unpack(redis.call(
    'HMGET', state_key(tx_id),
    'phase', 'token', 'ended', 'version', 'verdict', 'verdict_note', 'undoing', 'joined'))
  local refused = token_refused(tx_id, token, phase, held, ended)
  if refused then return refused end
  return nil, {version = version, verdict = verdict, verdict_note = verdict_note, undoing = undoing, joined = joined}
end

-- The verdict came first: the run may only go where the verdict leads (design 2: the first of them wins). Once undoing
-- has begun its status is fixed: a write that knows of none, or of another, was decided before, and came late.
-- status: the final status that this write brings, or undoes for; '' for neither.
local function verdict_against(run, status)
  if has(run.undoing) then
    if run.undoing ~= status then return refuse('STALE_TOKEN', 'it undoes what was done, to end ' .. run.undoing) end
  elseif has(run.verdict) and run.verdict ~= status then
    return {'VERDICT', run.verdict, run.verdict_note or ''}
  end
end

-- What the token's last write leaves in the hash, so that the same call again gets the same answer; another one,
-- by a step that did not notice the end, is refused.
local function ended_by(token, result, version)
  return token .. ' ' .. SCRIPT .. ' ' .. result .. ' ' .. text_of(version)
end

local function close_run(tx_id, run)
  remove(processing_key, tx_id)
  remove(running_key, tx_id)
  if run.joined == '1' then redis.call('DEL', join_key(tx_id)) end
end
