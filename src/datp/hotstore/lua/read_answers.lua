#!lua
--[[
read_answers: what nodes of this partition have answered to admin events.

reads
  answers
items
  event_id
returns
  node, answer, … for each
]]
return each(function(item)
  return redis.call('HGETALL', answers_key(read_item(item)))
end)
