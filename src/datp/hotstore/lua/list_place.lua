#!lua
--[[
list_place: a page of the transactions that stand in one place.

reads
  queue
  running
  sleeping
  joining
  exceptions
  to_archive
  reasons
  state
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
local BRIEF = {'owner', 'type', 'phase', 'status', 'external_id', 'started_at', 'sequence', 'note', 'undoing', 'parent',
  'wake_switch', 'group', 'untold'}
local last = offset + count - 1
local listed = {}
local function list(tx_id, score)
  local entry = {tx_id, score, place == 'exceptions' and redis.call('HGET', reasons_key, tx_id) or ''}
  local fields = redis.pcall('HMGET', state_key(tx_id), unpack(BRIEF))
  for index = 1, #BRIEF do entry[#entry + 1] = not fields.err and fields[index] or '' end
  listed[#listed + 1] = entry
end
if place == 'in' or place == 'out' then
  for _, tx_id in ipairs(redis.call('LRANGE', queue_key(place, group), offset, last)) do list(tx_id, '') end
else
  local found = redis.call('ZRANGE', SETS[place], offset, last, 'WITHSCORES')
  for index = 1, #found, 2 do list(found[index], found[index + 1]) end
end
return {now, listed}
