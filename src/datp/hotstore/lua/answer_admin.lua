#!lua flags=allow-oom
--[[
answer_admin: a node has dealt with admin events: they leave its queue, and whoever asked finds the answers.

writes
  admin
  answers
  last_admin
args
  node
items
  event     as it was given
  event_id  '' when nobody asked for an answer
  answer    JSON
returns
  OK
]]
return each(function(item)
  local event, event_id, answer = read_item(item)
  redis.call('LREM', admin_key(node), 1, event)
  if event_id ~= '' then
    redis.call('HSET', answers_key(event_id), node, answer)
    redis.call('PEXPIRE', answers_key(event_id), 600000)
    redis.call('HSET', last_admin_key, node, answer)
  end
  return {'OK'}
end)
