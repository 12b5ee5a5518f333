#!lua flags=allow-oom
--[[
join_branch: a branch that ended while nobody counted it is counted at its parent, once.

includes
  ending
args
  external_id_period_ms
  archive_delay_ms
items
  tx_id      the parent
  branch_id
  status     the branch's final status
  result     what it leaves for its parent, JSON
returns
  OK         counted
  ALREADY    it was counted before
refuses
  NOT_JOINING  the parent's phase
]]
return each(function(item)
  local tx_id, branch_id, status, result = read_item(item)
  local phase = redis.call('HGET', state_key(tx_id), 'phase')
  if phase ~= 'joining' then return refuse('NOT_JOINING', phase or '') end
  if redis.call('HGET', join_key(tx_id), branch_id) ~= '' then return {'ALREADY'} end
  count_branch(tx_id, branch_id, status, result)
  return {'OK'}
end)
