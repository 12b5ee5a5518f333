#!lua
--[[
list_nodes: the nodes that are alive, as they registered, and the last admin event that each has answered.

reads
  nodes
  node
  last_admin
returns
  now, and of each: node, its record (JSON), until when it counts as alive, the last admin event (JSON) or ''
]]
local listed = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', nodes_key, '(' .. string.format('%.0f', now), '+inf')) do
  listed[#listed + 1] = {name, redis.call('HGET', node_key, name) or '{}', redis.call('ZSCORE', nodes_key, name),
    redis.call('HGET', last_admin_key, name) or ''}
end
return {now, listed}
