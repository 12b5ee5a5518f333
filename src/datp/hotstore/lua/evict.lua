#!lua
--[[
evict: sleepers that SQL holds, and that the store knows nothing of, stand in memory by their ids only.

writes
  evicted
  sleeping
  external_id
reads
  state
items
  tx_id
  version       the version that SQL holds
  due           when it wakes; 0: not by itself
  owner
  external_id   '' for none
  request_hash
returns
  OK
refuses
  PRESENT       the version that the store has, in memory or as evicted
]]
return each(function(item)
  local tx_id, version, due, owner, external_id, request_hash = read_item(item)
  local held = redis.call('HGET', state_key(tx_id), 'version') or redis.call('HGET', evicted_key, tx_id)
  if held then return refuse('PRESENT', held) end
  redis.call('HSET', evicted_key, tx_id, text_of(version))
  redis.call('ZADD', sleeping_key, due > 0 and due or '+inf', tx_id)
  if external_id ~= '' then
    local key = external_id_key(owner, external_id)
    redis.call('SET', key, tx_id .. ' ' .. request_hash, 'NX')
    -- A later transaction may have the externalId by now; its key is left as it is.
    if string.match(redis.call('GET', key), '^%S+') == tx_id then redis.call('PERSIST', key) end
  end
  return {'OK'}
end)
