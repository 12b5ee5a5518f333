#!lua
--[[
dequeue: a node takes queued transactions; each is running, with a lease and a token.

Out goes before in, but every k-th item taken while both have some is an `in`. The same turn again gets the same items.

includes
  alive
  batch
  queue
  parking
  telling
reads
  switches
  join
writes
  state
  withdrawn
  share
  turn
  processing
  running
  admin
args
  group           the node's group
  node            the node's id, new at every start
  lane            which of the node's concurrent turns this is
  turn            the number of this turn; tokens begin with node.turn
  want            how many to take
  alone           1 if the node runs nothing: it may take what lost a lease before, one, or some that lost one only
  lease_ms        how long the node may keep silent
  in_share        k: every k-th item is an `in`
  together_max    how many that lost one lease only are taken together
  batch_bytes_max how many bytes of documents at the most; but one document is always taken
returns
  now, left (1 when work is left in the queues), suspect (1 when the next one wants a node for itself), admin events,
  and the taken: tx_id, token, event, state, owner, type, external_id, losses, verdict, verdict_note, parent, woken,
  deadline, started_at, durability, switches (name, value, …), join (field, value, …)
refuses
  PARKED  an id without a sound state went to the exception list
]]
local turn_prefix = node .. '.' .. string.format('%.0f', turn) .. '.'
local function read(tx_id)
  local v = redis.pcall('HMGET', state_key(tx_id), 'phase', 'queue', 'group', 'version', 'event', 'state', 'owner', 'type',
    'external_id', 'losses', 'verdict', 'verdict_note', 'parent', 'woken', 'deadline', 'started_at', 'durability',
    'switches', 'joined', 'token', 'webhook')
  if v.err or not v[1] then return nil end
  return {
    phase = v[1], queue = v[2] or '', group = v[3] or '', version = v[4] or '', event = v[5] or '', state = v[6] or '',
    owner = v[7] or '', type = v[8] or '', external_id = v[9] or '', losses = v[10] or '', verdict = v[11] or '',
    verdict_note = v[12] or '', parent = v[13] or '', woken = v[14] or '', deadline = v[15] or '',
    started_at = v[16] or '', durability = v[17] or 'hot', switches = v[18], joined = v[19], token = v[20],
    webhook = v[21],
  }
end

local function handed_over(tx_id, tx, token)
  local switches = tx.switches == '1' and redis.call('HGETALL', switches_key(tx_id)) or {}
  local join = tx.joined == '1' and redis.call('HGETALL', join_key(tx_id)) or {}
  return {tx_id, token, tx.event, tx.state, tx.owner, tx.type, tx.external_id, tx.losses, tx.verdict, tx.verdict_note,
    tx.parent, tx.woken, tx.deadline, tx.started_at, tx.durability, switches, join}
end

-- What a state must have to be run; the reason, if it hasn't.
local NEEDED = {'phase', 'version', 'event', 'state', 'owner', 'type', 'group', 'queue'}
local NUMBERS = {'version', 'losses', 'deadline', 'started_at'}
local function broken(tx)
  for index = 1, #NEEDED do
    if tx[NEEDED[index]] == '' then return 'its state has no ' .. NEEDED[index] end
  end
  for index = 1, #NUMBERS do
    local number = tx[NUMBERS[index]]
    if number ~= '' and not (tonumber(number) and string.find(number, '^%d')) then
      return 'its ' .. NUMBERS[index] .. ' is not a number'
    end
  end
end

local taken = {}
local ids = {}
local bytes, is_full = 0, false
local suspect = 0
-- Of the taken, how many had lost a lease. What a node ran when it died is tried in company first, or the last of a
-- hundred would wait for ninety-nine; whoever dies again in that company is tried by itself.
local company = 0

-- The reply to this very turn was lost: what it took is handed over again, and no attempt is counted. An older turn
-- was given up; if it comes late, nobody waits for what it would take.
local last_turn, last_ids = string.match(redis.call('HGET', turn_key(node), lane) or '', '^(%S+) (.*)$')
if last_turn and tonumber(last_turn) > turn then want = 0 end
if last_turn == string.format('%.0f', turn) then
  local index = 0
  for tx_id in string.gmatch(last_ids, '%S+') do
    index = index + 1
    local tx = read(tx_id)
    if tx and tx.phase == 'running' and tx.token == turn_prefix .. index then
      taken[#taken + 1] = handed_over(tx_id, tx, tx.token)
    end
  end
  want = 0
end

-- Looks at the head of a queue, takes what is sound, drops what was withdrawn, parks what is broken.
-- Nothing is popped before its state has been read.
local function take(queue, limit)
  local list = queue_key(queue, group)
  local seen = 0
  local found = limit > 0 and not is_full and redis.call('LRANGE', list, 0, limit - 1) or {}
  for _, tx_id in ipairs(found) do
    local tx = read(tx_id)
    local reason = not tx and 'its id was in a queue, but there is no state'
      or tx.phase == 'queued' and broken(tx) or nil
    local token = turn_prefix .. (#ids + 1)
    local row
    bytes = bytes + (tx and #tx.state or 0)
    if #taken > 0 and bytes > batch_bytes_max then
      is_full = true
      break
    end
    if not reason and tx.phase == 'queued' and tx.queue == queue and tx.group == group then
      local fine, result = pcall(handed_over, tx_id, tx, token)
      if fine then row = result else reason = 'its switches or its branches\' results can\'t be read' end
    end
    if row then
      if tx.losses ~= '' and tx.losses ~= '0' then
        suspect = 1
        local is_repeated = tx.losses ~= '1'
        if alone ~= 1 or #taken > company or company >= together_max or (is_repeated and company > 0) then break end
        company = is_repeated and together_max or company + 1
      elseif company > 0 then
        break
      end
      local version = next_version(tx.version)
      redis.call('HSET', state_key(tx_id), 'phase', 'running', 'token', token, 'version', version, 'sequence', version)
      if tx.webhook then tell_status(tx_id, tx.webhook) end
      add(processing_key, now + lease_ms, tx_id)
      add(running_key, now, tx_id)
      ids[#ids + 1] = tx_id
      taken[#taken + 1] = row
      seen = seen + 1
    elseif redis.call('SREM', withdrawn_key, queue .. ' ' .. group .. ' ' .. tx_id) == 1 then
      seen = seen + 1
    else
      -- One that is sound, but somewhere else, was only listed twice: it is left where it is.
      if reason then park(tx_id, reason, queue .. ' ' .. group .. ' ' .. tx_id) end
      seen = seen + 1
    end
  end
  if seen > 0 then redis.call('LPOP', list, seen) end
  return seen
end

if want > 0 then
  local ins, outs = redis.call('LLEN', queue_key('in', group)), redis.call('LLEN', queue_key('out', group))
  local first_in, before = 0, nil
  if ins > 0 and outs > 0 then
    before = tonumber(redis.call('HGET', share_key, group) or 0)
    first_in = math.min(ins, math.floor((before + want) / in_share) - math.floor(before / in_share))
  end
  take('in', first_in)
  if suspect == 0 then take('out', want - #ids) end
  if suspect == 0 then take('in', want - #ids) end
  -- Only what was taken counts: an `in` that has to wait for a node of its own keeps its turn.
  if before and #ids > 0 then redis.call('HSET', share_key, group, (before + #ids) % in_share) end
  if company > 0 and #ids > 1 then
    for _, tx_id in ipairs(ids) do redis.call('HSET', state_key(tx_id), 'together', '1') end
  end
  if #ids > 0 then
    redis.call('HSET', turn_key(node), lane, string.format('%.0f', turn) .. ' ' .. table.concat(ids, ' '))
    redis.call('PEXPIRE', turn_key(node), 3600000)
  end
end
hear_of_nodes(lease_ms)

local left = redis.call('LLEN', queue_key('in', group)) + redis.call('LLEN', queue_key('out', group)) > 0 and 1 or 0
if left == 1 then ring(group) end
for _, finish_batch in ipairs(at_end) do finish_batch() end
return {now, left, suspect, redis.call('LRANGE', admin_key(node), 0, 9), taken}
