#!lua
--[[
find_external_id: which transactions these externalIds name.

reads
  external_id
items
  owner
  external_id
returns
  OK           the txId
refuses
  NO_STATE     no such externalId is known
]]
return each(function(item)
  local stored = redis.call('GET', external_id_key(read_item(item)))
  if not stored then return refuse('NO_STATE') end
  return {'OK', string.match(stored, '^%S+')}
end)
