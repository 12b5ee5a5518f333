#!lua
--[[
queue_stats: how much there is in each place, and since when the first of each queue has been waiting.

reads
  groups
  queue
  state
  processing
  running
  sleeping
  evicted
  joining
  exceptions
  to_archive
  webhooks
  withdrawn
returns
  now; of each group: its name, in, out, since when the first in and the first out have waited ('' for none);
  and the sizes by place: name, size, …
]]
local groups = redis.call('SMEMBERS', groups_key)
table.sort(groups)
local function first_since(list)
  local tx_id = redis.call('LINDEX', list, 0)
  local since = tx_id and redis.pcall('HGET', state_key(tx_id), 'sequence') or ''
  return type(since) == 'string' and since or ''
end
local by_group = {}
for place, group in ipairs(groups) do
  local ins, outs = queue_key('in', group), queue_key('out', group)
  by_group[place] = {group, redis.call('LLEN', ins), redis.call('LLEN', outs), first_since(ins), first_since(outs)}
end
return {now, by_group, {
  'processing', redis.call('ZCARD', processing_key),
  'running', redis.call('ZCARD', running_key),
  'sleeping', redis.call('ZCARD', sleeping_key),
  'evicted', redis.call('HLEN', evicted_key),
  'joining', redis.call('ZCARD', joining_key),
  'exceptions', redis.call('ZCARD', exceptions_key),
  'to_archive', redis.call('ZCARD', to_archive_key),
  'webhooks', redis.call('ZCARD', webhooks_key),
  'withdrawn', redis.call('SCARD', withdrawn_key),
}}
