#!lua
--[[
retry: an operator puts a parked transaction back into its queue, as it is or with an edited document.

includes
  queue
  telling
writes
  state
  exceptions
  reasons
items
  tx_id
bodies
  state      the edited document; '' keeps the stored one
returns
  OK          version
refuses
  NO_STATE    there is no such state
  NOT_PARKED  its phase
  BROKEN      the field without which it can't be run
]]
return each(function(item, state)
  local tx_id = read_item(item)
  local phase, version, event, document, owner, type, group, queue, parent, webhook = unpack(redis.call('HMGET',
    state_key(tx_id), 'phase', 'version', 'event', 'state', 'owner', 'type', 'group', 'queue', 'parent', 'webhook'))
  if not phase then return refuse('NO_STATE') end
  if phase ~= 'exception' then return refuse('NOT_PARKED', phase) end
  local needed = {event = event, owner = owner, type = type, group = group, queue = queue}
  for _, name in ipairs({'event', 'owner', 'type', 'group', 'queue'}) do
    if not needed[name] or needed[name] == '' then return refuse('BROKEN', name) end
  end
  if state == '' and (not document or document == '') then return refuse('BROKEN', 'state') end
  version = next_version(version or 0)
  redis.call('HSET', state_key(tx_id), 'phase', 'queued', 'version', version, 'sequence', version, 'losses', 0, 'note', '')
  if state ~= '' then redis.call('HSET', state_key(tx_id), 'state', state) end
  redis.call('ZREM', exceptions_key, tx_id)
  redis.call('HDEL', reasons_key, tx_id)
  push(queue, group, tx_id)
  if not parent then tell_change(tx_id, webhook, 'queued', version) end
  return {'OK', version}
end)
