#!lua flags=allow-oom
--[[
reap: expired leases go back to the head of their queues, or to the exception list; due verdicts are enforced.

includes
  ending
  parking
writes
  meta
  state
  processing
  running
args
  external_id_period_ms
  archive_delay_ms
  cancel_grace_ms
  lease_ms
  attempts_max   how many lost leases of one that ran by itself are borne
  want           how many of each kind at the most
  at_once        1: no other node can be alive; every lease counts as expired
returns
  now, when the next lease or verdict is due ('' for none), and of each: tx_id, what happened, a detail
  REQUEUED  its lease expired; the detail is how many it has lost
  PARKED    it lost more leases than attempts_max allows, or its state is gone or broken
  ASKED     its deadline passed, or its branch was cancelled; the step was asked to end
  FENCED    the grace is over; it runs no more
  OK        the verdict was enforced
  GRACE     nothing was reaped: the store was away, and everybody gets one lease to renew
]]
local results = {}
local function say(tx_id, what, detail)
  results[#results + 1] = {tx_id, what, detail or ''}
end

-- One that was taken by itself, after it had lost a lease before, is what killed its node; the first loss may be
-- a neighbour's fault, and doesn't count; nor does one in the company of others that had lost one too.
local function lease_lost(tx_id)
  redis.call('ZREM', processing_key, tx_id)
  redis.call('ZREM', running_key, tx_id)
  local phase, losses, queue, group, version, parent, together, webhook = unpack(redis.call(
    'HMGET', state_key(tx_id), 'phase', 'losses', 'queue', 'group', 'version', 'parent', 'together',
    'webhook'))
  if not phase or (phase == 'running' and not (queue and group)) then
    park(tx_id, 'it was running, but its state is gone or broken', 'processing')
    say(tx_id, 'PARKED')
    return
  end
  if phase ~= 'running' then return end
  losses = tonumber(losses or 0) + 1
  if losses == 1 then together = '' end
  if losses > attempts_max + (has(together) and 1 or 0) then
    redis.call('HSET', state_key(tx_id), 'losses', losses)
    park(tx_id, 'it lost its lease ' .. losses .. ' times: whatever runs it dies, or hangs', 'processing')
    say(tx_id, 'PARKED', losses)
    return
  end
  version = next_version(version)
  redis.call('HSET', state_key(tx_id), 'phase', 'queued', 'token', '', 'ended', '', 'losses', losses,
    'together', together or '', 'version', version, 'sequence', version)
  push_to_head(queue, group, tx_id)
  if not parent then tell_change(tx_id, webhook, 'queued', version) end
  say(tx_id, 'REQUEUED', losses)
end

-- What raises is parked: otherwise it would come first, and raise, every time.
local function set_aside(tx_id, problem, from)
  problem = type(problem) == 'table' and problem.err or tostring(problem)
  park(tx_id, 'it could not be reaped: ' .. problem, from)
  say(tx_id, 'PARKED', problem)
end

-- One grace for one silence: when nobody renews in it, nobody is alive.
local renewed_at, grace_until, grace_for = unpack(redis.call(
  'HMGET', meta_key, 'renewed_at', 'grace_until', 'grace_for'))
if at_once ~= 1 and now - tonumber(renewed_at or now) > lease_ms / 2 and grace_for ~= renewed_at then
  grace_until = now + lease_ms
  redis.call('HSET', meta_key, 'grace_until', grace_until, 'grace_for', renewed_at)
end
if at_once == 1 or now >= tonumber(grace_until or 0) then
  local expired = redis.call('ZRANGEBYSCORE', processing_key, '-inf', at_once == 1 and '+inf' or now, 'LIMIT', 0, want)
  -- The oldest is pushed last, so that it stands first.
  for place = #expired, 1, -1 do
    local fine, problem = pcall(lease_lost, expired[place])
    if not fine then set_aside(expired[place], problem, 'processing') end
  end
else
  say('', 'GRACE', grace_until)
end

local due = redis.call('ZRANGEBYSCORE', deadlines_key, '-inf', now, 'LIMIT', 0, want)
for _, tx_id in ipairs(due) do
  local fine, result = pcall(apply_verdict, tx_id, 'timeout', 'the deadline passed', cancel_grace_ms, true)
  if not fine then
    redis.call('ZREM', deadlines_key, tx_id)
    set_aside(tx_id, result, 'deadlines')
  elseif result[1] == 'ASKED' or result[1] == 'FENCED' or result[1] == 'OK' then
    say(tx_id, result[1], result[2])
  else
    redis.call('ZREM', deadlines_key, tx_id)
  end
end
for _, finish_batch in ipairs(at_end) do finish_batch() end

local function first(key)
  local score = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  return score and tonumber(score) or math.huge
end
local next_lease = first(processing_key)
if at_once ~= 1 then next_lease = math.max(next_lease, tonumber(grace_until or 0)) end
local next_due = math.min(next_lease, first(deadlines_key))
return {now, next_due < math.huge and string.format('%.0f', next_due) or '', results}
