--[[
brief: a transaction in one line, as lists show it.

reads
  state
  sleeping
  reasons
]]
local BRIEF = {'owner', 'type', 'phase', 'status', 'external_id', 'started_at', 'sequence', 'note', 'undoing', 'parent',
  'wake_switch', 'group', 'untold'}

-- tx_id, score, reason, and the fields; those of a state that is missing, or no hash, are ''. The score is when it
-- wakes (of an evicted one too), unless the caller has another.
local function brief(tx_id, score)
  local fields = redis.pcall('HMGET', state_key(tx_id), unpack(BRIEF))
  local phase = not fields.err and fields[3] or ''
  local may_sleep = phase == 'sleeping' or phase == 'waiting' or phase == ''
  local entry = {tx_id, score or may_sleep and redis.call('ZSCORE', sleeping_key, tx_id) or '',
    (phase == 'exception' or phase == '') and redis.call('HGET', reasons_key, tx_id) or ''}
  for index = 1, #BRIEF do entry[#entry + 1] = not fields.err and fields[index] or '' end
  return entry
end
