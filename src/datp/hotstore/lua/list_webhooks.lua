#!lua
--[[
list_webhooks: a page of the deliveries that are owed, what is due first first.

reads
  webhook
  webhook_chain
  webhooks
args
  offset
  count
returns
  now, and of each: tx_id, when it is tried next, how many wait behind it, kind, owner, webhook, sequence, attempt,
  claim, parked, comment
]]
local BRIEF = {'kind', 'owner', 'webhook', 'sequence', 'attempt', 'claim', 'parked', 'comment'}
local listed = {}
local found = redis.call('ZRANGE', webhooks_key, offset, offset + count - 1, 'WITHSCORES')
for index = 1, #found, 2 do
  local entry = {found[index], found[index + 1], redis.call('LLEN', webhook_chain_key(found[index]))}
  local fields = redis.call('HMGET', webhook_key(found[index]), unpack(BRIEF))
  for place = 1, #BRIEF do entry[#entry + 1] = fields[place] or '' end
  listed[#listed + 1] = entry
end
return {now, listed}
