#!lua
--[[
list_newest: a page of what began before a moment, the newest first, of all that memory holds and SQL may not.

includes
  brief
reads
  started
args
  before_ms  they began before; or then, with an id before before_id
  before_id  '' to begin with
  from_ms    they began then or later
  count
returns
  now, when each began, and of each: tx_id, when it wakes, reason, owner, type, phase, status, external_id, started_at,
  sequence, note, undoing, parent, wake_switch, group, untold
]]
local times, listed = {}, {}
local offset = 0
repeat
  -- What began at the very moment where the last page ended is passed over; it is a few at the most.
  local found = redis.call('ZRANGE', started_key, string.format('%.0f', before_ms), string.format('%.0f', from_ms),
    'BYSCORE', 'REV', 'LIMIT', offset, count, 'WITHSCORES')
  for index = 1, #found, 2 do
    local tx_id, began = found[index], tonumber(found[index + 1])
    if #listed < count and (began < before_ms or tx_id < before_id) then
      times[#times + 1] = began
      listed[#listed + 1] = brief(tx_id)
    end
  end
  offset = offset + count
until #found < 2 * count or #listed == count
return {now, times, listed}
