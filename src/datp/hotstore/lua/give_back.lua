#!lua flags=allow-oom
--[[
give_back: what a node took but will not run goes back to the head of its queue, and no attempt is counted.

includes
  run
  queue
  telling
writes
  state
items
  tx_id
  token
returns
  OK           version
  ALREADY      what the same call answered before
refuses
  NO_STATE     there is no such state
  STALE_TOKEN  somebody else runs it, or nobody
]]
return each(function(item)
  local tx_id, token = read_item(item)
  local refused, run = open_run(tx_id, token)
  if refused then return refused end
  local queue, group, parent, webhook =
    unpack(redis.call('HMGET', state_key(tx_id), 'queue', 'group', 'parent', 'webhook'))
  local version = next_version(run.version)
  remove(processing_key, tx_id)
  remove(running_key, tx_id)
  redis.call('HSET', state_key(tx_id), 'phase', 'queued', 'token', '', 'ended', ended_by(token, 'OK', version),
    'version', version, 'sequence', version)
  push_to_head(queue, group, tx_id)
  if not parent then tell_change(tx_id, webhook, 'queued', version) end
  return {'OK', version}
end)
