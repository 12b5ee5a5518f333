#!lua
--[[
save_node_groups: node groups are known, with the settings that their nodes share.

writes
  node_group
items
  group
  values    JSON
  only_new  1: an existing group is left as it is
returns
  OK
  SAME      it was there already
]]
return each(function(item)
  local group, values, only_new = read_item(item)
  if only_new == 1 and redis.call('HEXISTS', node_group_key, group) == 1 then return {'SAME'} end
  redis.call('HSET', node_group_key, group, values)
  redis.call('HINCRBY', node_group_key, ':changes', 1)
  return {'OK'}
end)
