#!lua
--[[
flush_counts: a process's counts of the last second are in the time slots; the same flush again counts nothing.

includes
  count
writes
  flushed
args
  process  the process's id, new at every start
  number   of this flush
items
  name
  by
returns
  OK       one per item
  ALREADY  this flush was counted
]]
if tonumber(redis.call('GET', flushed_key(process)) or 0) >= number then
  local already = {}
  for index = 1, #items do already[index] = {'ALREADY'} end
  return already
end
redis.call('SET', flushed_key(process), number, 'EX', 86400)
return each(function(item)
  local name, by = read_item(item)
  count(name, by)
  return {'OK'}
end)
