#!lua flags=allow-oom
--[[
renew_leases: what a node runs stays its own; with no items it says that the node is alive.

includes
  alive
reads
  state
writes
  processing
args
  lease_ms
items
  tx_id
  token
returns
  OK           until when
refuses
  NO_STATE     there is no such state
  STALE_TOKEN  somebody else runs it, or nobody: the node must stop working on it
]]
hear_of_nodes(lease_ms)
return each(function(item)
  local tx_id, token = read_item(item)
  local held = redis.call('HGET', state_key(tx_id), 'token')
  if not held then return refuse('NO_STATE') end
  if held ~= token or token == '' then return refuse('STALE_TOKEN') end
  redis.call('ZADD', processing_key, now + lease_ms, tx_id)
  return {'OK', now + lease_ms}
end)
