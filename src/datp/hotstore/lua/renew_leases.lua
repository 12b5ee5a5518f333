#!lua flags=allow-oom
--[[
renew_leases: what a node runs stays its own; with no items it says that the node is alive.

reads
  state
writes
  meta
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
local renewed_at = tonumber(redis.call('HGET', meta_key, 'renewed_at') or now)
if now - renewed_at > lease_ms / 2 then
  redis.call('HSET', meta_key, 'grace_until', now + lease_ms)
end
redis.call('HSET', meta_key, 'renewed_at', now)
return each(function(item)
  local tx_id, token = read_item(item)
  local held = redis.call('HGET', state_key(tx_id), 'token')
  if not held then return refuse('NO_STATE') end
  if held ~= token then return refuse('STALE_TOKEN') end
  redis.call('ZADD', processing_key, now + lease_ms, tx_id)
  return {'OK', now + lease_ms}
end)
