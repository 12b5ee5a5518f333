#!lua
--[[
register_node: a node is known to be alive for a while; nodes that were not heard of are forgotten.

writes
  nodes
  node
  last_admin
args
  node          its id
  record        what it says of itself, JSON; '' takes it off the list
  node_gone_ms  how long it counts as alive
returns
  now
]]
if record == '' then
  redis.call('ZREM', nodes_key, node)
  redis.call('HDEL', node_key, node)
  redis.call('HDEL', last_admin_key, node)
else
  redis.call('ZADD', nodes_key, now + node_gone_ms, node)
  redis.call('HSET', node_key, node, record)
end
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', nodes_key, '-inf', now, 'LIMIT', 0, 100)) do
  redis.call('ZREM', nodes_key, gone)
  redis.call('HDEL', node_key, gone)
  redis.call('HDEL', last_admin_key, gone)
end
return {now}
