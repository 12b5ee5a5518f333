--[[
telling: a client hears of a change, by notification; and by webhook, of the end, and of its status if it wants that.

includes
  notify
  webhook
]]
local function tell_status(tx_id, webhook)
  if has(webhook) and wants_statuses(webhook) then owe_webhook(tx_id, 'transaction.status') end
end

local function tell_change(tx_id, webhook, status, sequence)
  tell_status(tx_id, webhook)
  notify(tx_id, status, sequence)
end

local function tell_end(tx_id, webhook, status, sequence)
  if has(webhook) then owe_webhook(tx_id, 'transaction.completed') end
  notify(tx_id, status, sequence)
end
