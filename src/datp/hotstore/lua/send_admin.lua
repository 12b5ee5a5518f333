#!lua
--[[
send_admin: nodes have an event in their admin queues, which they are given again and again until they answer.

includes
  queue
writes
  admin
args
  admin_queue_max  how many may wait for one node
items
  node
  event      JSON: id, kind, expiresAt and what the kind needs
returns
  OK
refuses
  FULL       the node has not answered admin_queue_max events
]]
return each(function(item)
  local node, event = read_item(item)
  if redis.call('LLEN', admin_key(node)) >= admin_queue_max then return refuse('FULL') end
  redis.call('RPUSH', admin_key(node), event)
  redis.call('PEXPIRE', admin_key(node), 600000)
  ring(node)
  return {'OK'}
end)
