--[[
raising: operators are to be told of something; what happens again is counted.

writes
  operator_event
  operator_events
]]
local OPERATOR_EVENTS_MAX = 1000
-- A code and a subject are one event. While SQL takes none for long, what is new beyond the limit is left to the logs.
local function raise_event(code, subject, text)
  local event_id = string.sub(redis.sha1hex(code .. '\n' .. subject), 1, 16)
  if redis.call('EXISTS', operator_event_key(event_id)) == 0 then
    if redis.call('ZCARD', operator_events_key) >= OPERATOR_EVENTS_MAX then return '' end
    redis.call('HSET', operator_event_key(event_id), 'code', code, 'subject', subject, 'first_at', now)
    redis.call('ZADD', operator_events_key, now, event_id)
  end
  redis.call('HSET', operator_event_key(event_id), 'text', text, 'last_at', now)
  redis.call('HINCRBY', operator_event_key(event_id), 'times', 1)
  return event_id
end
