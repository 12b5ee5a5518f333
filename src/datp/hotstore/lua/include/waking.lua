--[[
waking: a sleeper or waiter goes back to the queue of its group.

includes
  queue
  telling
writes
  state
  sleeping
  deadlines
  to_archive
]]
local WAKING = {'phase', 'version', 'group', 'deadline', 'wake_switch', 'verdict', 'parent', 'undoing', 'webhook'}

local function load_sleeper(tx_id)
  local values = redis.call('HMGET', state_key(tx_id), unpack(WAKING))
  if not values[1] then return nil end
  local tx = {}
  for place, name in ipairs(WAKING) do tx[name] = values[place] or '' end
  return tx
end

-- why: time, switch or operator; the step is told. Archiving is taken back: a short sleep costs SQL nothing.
local function wake(tx_id, tx, why)
  local version = next_version(tx.version)
  redis.call('HSET', state_key(tx_id), 'phase', 'queued', 'queue', 'in', 'woken', why, 'wake_switch', '',
    'version', version, 'sequence', version)
  redis.call('ZREM', sleeping_key, tx_id)
  redis.call('ZREM', to_archive_key, tx_id)
  -- A verdict that a branch was given in its sleep is due already.
  if tx.deadline ~= '' and not has(tx.undoing) and tx.verdict == '' then
    redis.call('ZADD', deadlines_key, tx.deadline, tx_id)
  end
  push('in', tx.group, tx_id)
  if tx.parent == '' then tell_change(tx_id, tx.webhook, 'queued', version) end
  return version
end
