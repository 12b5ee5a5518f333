#!lua
--[[
push_log: what steps said on a node without a database waits for an archiver; what finds no room is dropped.

writes
  log
args
  logbook_store_max  how many may wait here
items
  entry      JSON
returns
  how many found room
]]
local room = math.max(0, logbook_store_max - redis.call('LLEN', log_key))
local taken = {}
for index = 1, math.min(room, #items) do
  local item = items[index]
  local entry = read_item(item)
  taken[index] = entry
end
-- In pieces, because Lua's stack holds some 8000 values.
for first = 1, #taken, 1000 do
  redis.call('RPUSH', log_key, unpack(taken, first, math.min(first + 999, #taken)))
end
return #taken
