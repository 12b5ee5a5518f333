#!lua flags=allow-oom
--[[
next_events: operator events that SQL holds are dropped, and the next are claimed on their way there.

writes
  operator_event
  operator_events
args
  want            how many at the most
  event_claim_ms  how long nobody else is given them
items
  event_id
  times      how often it had happened when SQL took it
returns
  a result per acknowledgement; and of each claimed: event_id, the fields (name, value, …)
  OK         it is gone from here
  AGAIN      it has happened again meanwhile, and comes again
  GONE       there is no such event
]]
local acknowledged = each(function(item)
  local event_id, times = read_item(item)
  if redis.call('EXISTS', operator_event_key(event_id)) == 0 then return {'GONE'} end
  if redis.call('HINCRBY', operator_event_key(event_id), 'times', -times) > 0 then
    redis.call('HSET', operator_event_key(event_id), 'first_at', redis.call('HGET', operator_event_key(event_id), 'last_at'))
    redis.call('ZADD', operator_events_key, now, event_id)
    return {'AGAIN'}
  end
  redis.call('DEL', operator_event_key(event_id))
  redis.call('ZREM', operator_events_key, event_id)
  return {'OK'}
end)
local claimed = {}
if want > 0 then
  for _, event_id in ipairs(redis.call('ZRANGEBYSCORE', operator_events_key, '-inf', now, 'LIMIT', 0, want)) do
    redis.call('ZADD', operator_events_key, now + event_claim_ms, event_id)
    claimed[#claimed + 1] = {event_id, redis.call('HGETALL', operator_event_key(event_id))}
  end
end
return {acknowledged, claimed}
