#!lua
--[[
read_counts: the counts of time slots.

reads
  metric
items
  series  1, 2 or 3
  slot    its start, in seconds
returns
  counter, count, … for each
]]
return each(function(item)
  local series, slot = read_item(item)
  return redis.call('HGETALL', metric_key(string.format('%.0f', series), string.format('%.0f', slot)))
end)
