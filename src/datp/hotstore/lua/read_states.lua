#!lua
--[[
read_states: states with every field, as SQL keeps them; nobody has claimed them.

reads
  state
  switches
  join
  webhook
args
  durability  only those of this level; '' for all
items
  tx_id
returns
  OK        version, fields, switches, join (name, value, …), 1 if a webhook is owed
refuses
  NO_STATE  there is no such state in memory
  OTHER     the level that it has
]]
return each(function(item)
  local tx_id = read_item(item)
  local version = redis.call('HGET', state_key(tx_id), 'version')
  if not version then return refuse('NO_STATE') end
  local level = redis.call('HGET', state_key(tx_id), 'durability') or ''
  if durability ~= '' and level ~= durability then return refuse('OTHER', level) end
  return {'OK', version, redis.call('HGETALL', state_key(tx_id)), redis.call('HGETALL', switches_key(tx_id)),
    redis.call('HGETALL', join_key(tx_id)), redis.call('EXISTS', webhook_key(tx_id))}
end)
