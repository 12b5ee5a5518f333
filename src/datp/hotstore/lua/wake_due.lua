#!lua flags=allow-oom
--[[
wake_due: sleepers whose time has come go back to their queues, oldest first; one that was evicted is claimed.

includes
  waking
  ending
  parking
reads
  evicted
writes
  sleeping
args
  external_id_period_ms
  archive_delay_ms
  cancel_grace_ms
  want           how many at the most
  wake_claim_ms  how long the caller has to restore an evicted one before another node is told of it
returns
  now, when the next sleeper is due ('' for none), and of each: tx_id, what happened, a detail
  WOKEN    it is queued
  EVICTED  it is in SQL: restore it; the detail is the version that SQL holds
  TIMEOUT  its deadline came first; the detail is its verdict
  PARKED   there is no such state anywhere, or it is broken
  AWAKE    it was not asleep; the detail is its phase
]]
local function wake_one(tx_id)
  local tx = load_sleeper(tx_id)
  if tx and (tx.phase == 'sleeping' or tx.phase == 'waiting') then
    if tx.deadline ~= '' and tonumber(tx.deadline) <= now and not has(tx.undoing) then
      -- A branch may have another verdict already, which is due as well.
      local verdict = apply_verdict(tx_id, 'timeout', 'the deadline passed', cancel_grace_ms, true)[2]
      return {tx_id, 'TIMEOUT', verdict}
    end
    wake(tx_id, tx, 'time')
    return {tx_id, 'WOKEN', ''}
  end
  if tx then
    redis.call('ZREM', sleeping_key, tx_id)
    return {tx_id, 'AWAKE', tx.phase}
  end
  local version = redis.call('HGET', evicted_key, tx_id)
  if version then
    redis.call('ZADD', sleeping_key, now + wake_claim_ms, tx_id)
    return {tx_id, 'EVICTED', version}
  end
  error({err = 'there is no state'})
end

local results = {}
local due = redis.call('ZRANGEBYSCORE', sleeping_key, '-inf', now, 'LIMIT', 0, want)
for place, tx_id in ipairs(due) do
  local fine, result = pcall(wake_one, tx_id)
  if not fine then
    -- What raises is parked: otherwise it would come first, and raise, every time.
    local problem = type(result) == 'table' and result.err or tostring(result)
    redis.call('ZREM', sleeping_key, tx_id)
    park(tx_id, 'it was asleep, and can\'t be woken: ' .. problem, 'sleeping')
    result = {tx_id, 'PARKED', problem}
  end
  results[place] = result
end
for _, finish_batch in ipairs(at_end) do finish_batch() end
local next_due = redis.call('ZRANGE', sleeping_key, 0, 0, 'WITHSCORES')[2] or ''
return {now, next_due, results}
