#!lua
--[[
brief_states: what memory holds of these transactions, in one line each.

includes
  brief
items
  tx_id
returns
  OK         tx_id, when it wakes, reason, and the fields as list_newest tells them; all '' when there is no state here
]]
return each(function(item)
  local tx_id = read_item(item)
  return {'OK', brief(tx_id)}
end)
