--[[
ending: a transaction gets its final status, or its verdict; a branch is counted at its parent.

includes
  batch
  count
  queue
  telling
reads
  evicted
writes
  state
  switches
  join
  processing
  running
  sleeping
  deadlines
  joining
  exceptions
  reasons
  to_archive
  external_id
  admin
]]
-- The fields that an ending depends on; nil when there is no such state.
local function load_ending(tx_id)
  local v = redis.call('HMGET', state_key(tx_id), 'phase', 'version', 'status', 'owner', 'type', 'group', 'queue',
    'external_id', 'webhook', 'parent', 'deadline', 'switches', 'undo_group', 'undoing', 'verdict', 'verdict_note', 'token',
    'ended', 'joined', 'durability', 'untold')
  if not v[1] then return nil end
  return {
    phase = v[1], version = v[2] or '', status = v[3] or '', owner = v[4] or '', type = v[5] or '', group = v[6] or '',
    queue = v[7] or '', external_id = v[8] or '', webhook = v[9] or '', parent = v[10] or '', deadline = v[11] or '',
    switches = v[12] or '', undo_group = v[13] or '', undoing = v[14] or '', verdict = v[15] or '',
    verdict_note = v[16] or '', token = v[17] or '', ended = v[18] or '', joined = v[19] or '',
    durability = v[20] or '', untold = v[21] or '',
  }
end

local conclude, count_branch

-- The final status: everything that belonged to a live transaction goes, and archiving is scheduled.
-- `written` are further fields to be stored in the same command: the document, the output, the note.
local function finish(tx_id, tx, status, written, branch_result)
  local version = next_version(tx.version)
  -- With durability journal the client is told when SQL holds it: until then the sequence, and so the reply, stays.
  local is_told = tx.durability ~= 'journal' or tx.parent ~= ''
  redis.call('HSET', state_key(tx_id),
    'phase', 'complete', 'status', status, 'version', version, 'token', '', 'event', '',
    is_told and 'sequence' or 'untold', is_told and version or '1', unpack(written))
  if tx.deadline ~= '' or tx.verdict ~= '' then remove(deadlines_key, tx_id) end
  if tx.switches == '1' then redis.call('DEL', switches_key(tx_id)) end
  if tx.external_id ~= '' then
    redis.call('PEXPIRE', external_id_key(tx.owner, tx.external_id), external_id_period_ms)
  end
  add(to_archive_key, is_told and now + archive_delay_ms or now, tx_id)
  if tx.parent == '' then
    count('completed|' .. status .. '|' .. tx.owner .. '|' .. tx.type .. '|' .. tx.group)
    if is_told then tell_end(tx_id, tx.webhook, status, version) end
  else
    count('branch-completed|' .. status .. '|' .. tx.owner .. '|' .. tx.type .. '|' .. tx.group)
    count_branch(tx.parent, tx_id, status, branch_result)
  end
  return version
end

-- A live transaction that is at rest nowhere gets back into the out queue of its group.
local function queue_out(tx_id, tx, event)
  local version = next_version(tx.version)
  local fields = {'phase', 'queued', 'queue', 'out', 'group', tx.group, 'version', version, 'sequence', version}
  if event then
    fields[#fields + 1] = 'event'
    fields[#fields + 1] = event
  end
  redis.call('HSET', state_key(tx_id), unpack(fields))
  push('out', tx.group, tx_id)
  if tx.parent == '' then tell_change(tx_id, tx.webhook, 'queued', version) end
end

-- The verdict is enforced: at once where nothing has to be undone, else by a worker.
conclude = function(tx_id, tx)
  if tx.undo_group == '' then
    if tx.joined == '1' then redis.call('DEL', join_key(tx_id)) end
    finish(tx_id, tx, tx.verdict, {'note', tx.verdict_note, 'output', 'null', 'joined', ''},
      cjson.encode({status = tx.verdict, note = tx.verdict_note, pipeline = tx.type}))
  else
    -- Where it is now, nobody may be: it is undone where the first of it can be.
    tx.group = tx.undo_group
    queue_out(tx_id, tx, '{"kind":"verdict","at":0}')
  end
end

-- The join is decided, or its parent is to end: branches that still run are cancelled. Their verdict is stored and
-- made due; whoever reaps, or takes them, enforces it. Bounded by parallel_width_max.
local function settle(parent_id, why)
  local join = join_key(parent_id)
  local order = redis.call('HGET', join, ':order')
  if not order or redis.call('HSETNX', join, ':settled', '1') == 0 then return end
  for branch_id in string.gmatch(order, '%S+') do
    if redis.call('HGET', join, branch_id) == '' then
      local phase, verdict, undoing = unpack(redis.call('HMGET', state_key(branch_id), 'phase', 'verdict', 'undoing'))
      if phase and not has(undoing) and not has(verdict) then
        redis.call('HSET', state_key(branch_id), 'verdict', 'cancelled', 'verdict_note', why)
        redis.call('ZADD', deadlines_key, now, branch_id)
      end
    end
  end
end

count_branch = function(parent_id, branch_id, status, result)
  local join = join_key(parent_id)
  if redis.call('HGET', join, branch_id) ~= '' then return end
  redis.call('HSET', join, branch_id, result)
  local open = redis.call('HINCRBY', join, ':open', -1)
  local won = redis.call('HINCRBY', join, ':won', status == 'success' and 1 or 0)
  local parent = load_ending(parent_id)
  if not parent or parent.phase ~= 'joining' then return end
  if parent.undo_group == '' and string.find(result, '"undo":[', 1, true) then
    redis.call('HSET', state_key(parent_id), 'undo_group', parent.group)
    parent.undo_group = parent.group
  end
  if open == 0 then
    redis.call('HSET', state_key(parent_id), 'joined', '1')
    remove(joining_key, parent_id)
    parent.joined = '1'
    if parent.verdict ~= '' then
      conclude(parent_id, parent)
    else
      queue_out(parent_id, parent)
    end
  else
    local need = tonumber(redis.call('HGET', join, ':need'))
    -- With need 0 nothing decides it but the end of all.
    if need > 0 and (won >= need or won + open < need) then settle(parent_id, 'the join was decided without it') end
  end
end

-- The node that runs it is told; what it doesn't hear, the fence says after the grace.
local function ask_to_cancel(tx_id, tx)
  local node = string.match(tx.token, '^[^.]+')
  redis.call('RPUSH', admin_key(node), cjson.encode({
    id = 'cancel-' .. tx_id .. '-' .. tx.token, kind = 'cancel', txId = tx_id, token = tx.token,
    status = tx.verdict, note = tx.verdict_note, expiresAt = now + 60000}))
  redis.call('PEXPIRE', admin_key(node), 600000)
  ring(node)
end

-- Brings a stored or new verdict to a transaction, wherever it is.
-- enforce: the grace is over, or the verdict is due; what runs is fenced.
local function apply_verdict(tx_id, status, note, grace_ms, enforce)
  local tx = load_ending(tx_id)
  if not tx then
    local version = redis.call('HGET', evicted_key, tx_id)
    if version then return {'EVICTED', version} end
    return refuse('NO_STATE')
  end
  if tx.phase == 'complete' then return refuse('FINAL', has(tx.untold) and '' or tx.status) end
  if has(tx.undoing) then return refuse('UNDOING', tx.undoing) end
  local had_verdict = tx.verdict ~= ''
  if had_verdict and not enforce then return {'ALREADY', tx.verdict} end
  if not had_verdict then
    tx.verdict, tx.verdict_note = status, note
    redis.call('HSET', state_key(tx_id), 'verdict', status, 'verdict_note', note)
  end
  if tx.phase == 'running' then
    if redis.call('HGET', state_key(tx_id), 'asked') ~= tx.token then
      redis.call('HSET', state_key(tx_id), 'asked', tx.token)
      ask_to_cancel(tx_id, tx)
      redis.call('ZADD', deadlines_key, now + grace_ms, tx_id)
      return {'ASKED', tx.verdict}
    end
    redis.call('HSET', state_key(tx_id), 'token', '', 'ended', '')
    remove(processing_key, tx_id)
    remove(running_key, tx_id)
    redis.call('ZREM', deadlines_key, tx_id)
    conclude(tx_id, tx)
    return {'FENCED', tx.verdict}
  end
  redis.call('ZREM', deadlines_key, tx_id)
  if tx.phase == 'joining' then
    settle(tx_id, 'its parent ends: ' .. tx.verdict)
    return {'ASKED', tx.verdict}
  end
  if tx.phase == 'queued' then
    withdraw(tx.queue, tx.group, tx_id)
  elseif tx.phase == 'exception' then
    redis.call('ZREM', exceptions_key, tx_id)
    redis.call('HDEL', reasons_key, tx_id)
  else
    redis.call('ZREM', sleeping_key, tx_id)
    redis.call('ZREM', to_archive_key, tx_id)
  end
  conclude(tx_id, tx)
  return {'OK', tx.verdict}
end
