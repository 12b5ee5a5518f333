#!lua
--[[
save_node_groups: node groups are known, with the settings that their nodes share.

writes
  node_group
args
  change    the number of this change in SQL, which has it already; 0: no database keeps the definitions
items
  group
  values    JSON
  only_new  1: an existing group is left as it is
returns
  OK
  SAME      it was there already
refuses
  IN_SQL    the definitions of this store are kept in SQL: it has to have them first
]]
local published = tonumber(redis.call('HGET', node_group_key, ':published') or 0)
if change > published then redis.call('HSET', node_group_key, ':published', text_of(change)) end
return each(function(item)
  local group, values, only_new = read_item(item)
  if change == 0 and published > 0 then return refuse('IN_SQL') end
  if only_new == 1 and redis.call('HEXISTS', node_group_key, group) == 1 then return {'SAME'} end
  -- Two who change the same group may come here in another order than they came to SQL.
  if change < tonumber(redis.call('HGET', node_group_key, ':change:' .. group) or 0) then return {'SAME'} end
  redis.call('HSET', node_group_key, group, values, ':change:' .. group, text_of(change))
  redis.call('HINCRBY', node_group_key, ':changes', 1)
  return {'OK'}
end)
