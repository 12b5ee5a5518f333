#!lua flags=allow-oom
--[[
list_urls: the URLs of webhooks that are in trouble; what was long ago is forgotten.

writes
  url_trouble
  url_troubles
args
  count      how many at the most
returns
  now, and of each the fields (name, value, …): url, failures, last_at, paused_until, gone, comment
]]
for _, id in ipairs(redis.call('ZRANGEBYSCORE', url_troubles_key, '-inf', now, 'LIMIT', 0, 100)) do
  redis.call('DEL', url_trouble_key(id))
  redis.call('ZREM', url_troubles_key, id)
end
local listed = {}
for _, id in ipairs(redis.call('ZRANGE', url_troubles_key, 0, count - 1)) do
  listed[#listed + 1] = redis.call('HGETALL', url_trouble_key(id))
end
return {now, listed}
