--[[
alive: nodes are heard of; after a silence of half a lease the store was away, and everybody gets one lease to renew.

writes
  meta
]]
local function hear_of_nodes(lease_ms)
  local renewed_at = tonumber(redis.call('HGET', meta_key, 'renewed_at') or now)
  if now - renewed_at > lease_ms / 2 then redis.call('HSET', meta_key, 'grace_until', now + lease_ms) end
  redis.call('HSET', meta_key, 'renewed_at', now)
end
