#!lua
--[[
list_place: a page of the transactions that stand in one place.

includes
  brief
reads
  queue
  running
  joining
  exceptions
  to_archive
args
  place   in, out, running, sleeping, joining, exceptions or to_archive
  group   whose queue, for in and out
  offset
  count
returns
  now, and of each: tx_id, score, reason, owner, type, phase, status, external_id, started_at, sequence, note, undoing,
  parent, wake_switch, group, untold
]]
local SETS = {running = running_key, sleeping = sleeping_key, joining = joining_key, exceptions = exceptions_key,
  to_archive = to_archive_key}
local last = offset + count - 1
local listed = {}
if place == 'in' or place == 'out' then
  for _, tx_id in ipairs(redis.call('LRANGE', queue_key(place, group), offset, last)) do
    listed[#listed + 1] = brief(tx_id, '')
  end
else
  local found = redis.call('ZRANGE', SETS[place], offset, last, 'WITHSCORES')
  for index = 1, #found, 2 do listed[#listed + 1] = brief(found[index], found[index + 1]) end
end
return {now, listed}
