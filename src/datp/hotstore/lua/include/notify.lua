--[[
notify: whoever waits for a transaction is told that it changed, once per call for all of them; a hint.

writes
  notify
]]
local notices = {}

local function notify(tx_id, status, sequence)
  notices[#notices + 1] = tx_id .. ' ' .. status .. ' ' .. text_of(sequence)
end

at_end[#at_end + 1] = function()
  if #notices > 0 then redis.call('SPUBLISH', notify_key, table.concat(notices, '\n')) end
end
