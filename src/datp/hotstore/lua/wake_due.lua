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
  now, when the next sleeper is due ('' for none), and of each: tx_id, what happened, the version that SQL holds
  WOKEN    it is queued
  EVICTED  it is in SQL: restore it
  TIMEOUT  its deadline came first
  PARKED   there is no such state anywhere
]]
local results = {}
local due = redis.call('ZRANGEBYSCORE', sleeping_key, '-inf', now, 'LIMIT', 0, want)
for _, tx_id in ipairs(due) do
  local tx = load_sleeper(tx_id)
  local result
  if tx and (tx.phase == 'sleeping' or tx.phase == 'waiting') then
    if tx.deadline ~= '' and tonumber(tx.deadline) <= now and tx.undoing ~= '1' then
      apply_verdict(tx_id, 'timeout', 'the deadline passed', cancel_grace_ms, false)
      result = {tx_id, 'TIMEOUT', ''}
    else
      wake(tx_id, tx, 'time')
      result = {tx_id, 'WOKEN', ''}
    end
  else
    local version = redis.call('HGET', evicted_key, tx_id)
    if version then
      redis.call('ZADD', sleeping_key, now + wake_claim_ms, tx_id)
      result = {tx_id, 'EVICTED', version}
    else
      redis.call('ZREM', sleeping_key, tx_id)
      park(tx_id, 'it was asleep, but there is no state', 'sleeping')
      result = {tx_id, 'PARKED', ''}
    end
  end
  results[#results + 1] = result
end
for _, finish_batch in ipairs(at_end) do finish_batch() end
local next_due = redis.call('ZRANGE', sleeping_key, 0, 0, 'WITHSCORES')[2] or ''
return {now, next_due, results}
