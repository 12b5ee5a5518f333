--[[
telling: a client hears of the end, by notification and by webhook.

includes
  notify
  webhook
]]
local function tell_end(tx_id, webhook, status, sequence)
  if has(webhook) then owe_webhook(tx_id, 'transaction.completed') end
  notify(tx_id, status, sequence)
end
