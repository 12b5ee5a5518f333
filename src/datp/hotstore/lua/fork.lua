#!lua flags=allow-oom
--[[
fork: a run ends by starting branches; they are queued, and the parent joins.

includes
  run
  queue
  count
  telling
writes
  state
  join
  joining
  deadlines
  to_archive
items
  tx_id
  token
  group     where the parent goes on
  event     what is to be done then, JSON
  need      how many branches must succeed; 0: each may end as it does
  undo_group  where undoing would begin, or '' when there is nothing to undo
  branches  of each: tx_id, type, pipeline_version, group, deadline_in_ms, state
bodies
  state     the parent's document
returns
  OK        version
  ALREADY   what the same call answered before
  VERDICT   status, note
refuses
  NO_STATE       there is no such state
  STALE_TOKEN    somebody else runs it, or nobody
  BRANCH_EXISTS  a branch of this id is there already
]]
return each(function(item, state)
  local tx_id, token, group, event, need, undo_group, branches = read_item(item)
  local refused, run = open_run(tx_id, token)
  if refused then return refused end
  local verdict = verdict_against(run, '')
  if verdict then return verdict end
  for _, branch in ipairs(branches) do
    if redis.call('EXISTS', state_key(branch[1])) == 1 then return refuse('BRANCH_EXISTS', branch[1]) end
  end
  local version = next_version(run.version)
  local owner, deadline, durability, parent, webhook =
    unpack(redis.call('HMGET', state_key(tx_id), 'owner', 'deadline', 'durability', 'parent', 'webhook'))
  close_run(tx_id, run)
  -- A parent is in SQL no sooner than its branches: without them it would wait for ever once the store was lost.
  local snapshot = has(durability) and durability ~= 'hot' or redis.call('ZSCORE', to_archive_key, tx_id)
  local join = {':need', need, ':open', #branches, ':won', 0}
  local order = {}
  for place, branch in ipairs(branches) do
    local branch_id, type, pipeline_version, branch_group, deadline_in_ms, branch_state = unpack(branch)
    order[place] = branch_id
    join[#join + 1] = branch_id
    join[#join + 1] = ''
    local fields = {
      'phase', 'queued', 'queue', 'in', 'group', branch_group, 'event', '{"kind":"start","at":0}', 'version', now,
      'sequence', now, 'owner', owner, 'type', type, 'pipeline_version', pipeline_version, 'started_at', now,
      'durability', durability or 'hot', 'parent', tx_id, 'state', branch_state}
    -- A branch's deadline is at most its parent's.
    local ends_at = deadline_in_ms > 0 and now + deadline_in_ms or math.huge
    if deadline then ends_at = math.min(ends_at, tonumber(deadline)) end
    if ends_at < math.huge then
      fields[#fields + 1] = 'deadline'
      fields[#fields + 1] = ends_at
      add(deadlines_key, ends_at, branch_id)
    end
    redis.call('HSET', state_key(branch_id), unpack(fields))
    if snapshot then add(to_archive_key, now, branch_id) end
    push('in', branch_group, branch_id)
    count('branch-started|' .. owner .. '|' .. type .. '|' .. branch_group)
  end
  redis.call('DEL', join_key(tx_id))
  redis.call('HSET', join_key(tx_id), ':order', table.concat(order, ' '), unpack(join))
  redis.call('HSET', state_key(tx_id), 'phase', 'joining', 'group', group, 'event', event, 'version', version,
    'sequence', version, 'token', '', 'ended', ended_by(token, 'OK', version), 'losses', 0, 'undo_group', undo_group,
    'woken', '', 'joined', '', 'state', state)
  if snapshot then add(to_archive_key, now + 1, tx_id) end
  add(joining_key, now, tx_id)
  if not parent then tell_change(tx_id, webhook, 'waiting', version) end
  return {'OK', version}
end)
