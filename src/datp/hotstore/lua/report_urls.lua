#!lua flags=allow-oom
--[[
report_urls: how calls of webhooks' URLs went; one that keeps failing is paused, one that is gone is stopped.

writes
  url_trouble
  url_troubles
args
  webhook_fail_limit      how many failures in a row, each within the period of the last, pause a URL
  webhook_fail_period_ms  after so long without one, counting begins anew
  webhook_pause_ms        how long it is left alone then
items
  url
  result     failed, gone (the receiver wants no more), or fine: nothing is held against it any more
  comment    what was said
returns
  OK         failures so far, in a row
  PAUSED     until when: this failure was one too many
  STOPPED    it is gone: nothing is sent there until an operator, or a delivery that is sent again, says otherwise
  CLOSED     it was paused or stopped, and is called again
]]
return each(function(item)
  local url, result, comment = read_item(item)
  local id = redis.sha1hex(url)
  local failures, last_at, paused_until, gone =
    unpack(redis.call('HMGET', url_trouble_key(id), 'failures', 'last_at', 'paused_until', 'gone'))
  if result == 'fine' then
    redis.call('DEL', url_trouble_key(id))
    redis.call('ZREM', url_troubles_key, id)
    return {(has(paused_until) or has(gone)) and 'CLOSED' or 'OK', 0}
  end
  if result == 'gone' then
    redis.call('HSET', url_trouble_key(id), 'url', url, 'last_at', now, 'comment', comment, 'gone', 1)
    redis.call('ZADD', url_troubles_key, '+inf', id)
    return {has(gone) and 'OK' or 'STOPPED', tonumber(failures or 0)}
  end
  if not has(paused_until) and now - tonumber(last_at or now) > webhook_fail_period_ms then failures = 0 end
  failures = tonumber(failures or 0) + 1
  redis.call('HSET', url_trouble_key(id), 'url', url, 'last_at', now, 'comment', comment, 'failures', failures)
  -- After its pause one failure is enough.
  local pauses = failures >= webhook_fail_limit and now >= tonumber(paused_until or 0)
  if pauses then
    paused_until = now + webhook_pause_ms
    redis.call('HSET', url_trouble_key(id), 'paused_until', paused_until)
  end
  if not has(gone) then
    local kept_until = math.max(now, tonumber(paused_until or 0)) + webhook_fail_period_ms
    redis.call('ZADD', url_troubles_key, kept_until, id)
  end
  if pauses then return {'PAUSED', text_of(paused_until)} end
  return {'OK', failures}
end)
