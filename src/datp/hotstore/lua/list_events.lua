#!lua
--[[
list_events: the operator events that SQL doesn't hold yet.

reads
  operator_event
  operator_events
args
  count      how many at the most
returns
  event_id, the fields (name, value, …) of each
]]
local listed = {}
for _, event_id in ipairs(redis.call('ZRANGE', operator_events_key, 0, count - 1)) do
  listed[#listed + 1] = {event_id, redis.call('HGETALL', operator_event_key(event_id))}
end
return listed
