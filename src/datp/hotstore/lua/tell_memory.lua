#!lua flags=allow-oom
--[[
tell_memory: how full the store's memory budget is: sleepers leave sooner, and when it is used up nothing new starts.

writes
  meta
args
  evict_percent  of evict_after_ms, that sleepers stay in memory
  is_full        1: starts are refused
  holds_for_ms   how long this counts, unless it is told again
returns
  until when it counts
]]
local told_until = now + holds_for_ms
redis.call('HSET', meta_key, 'evict_percent', evict_percent, 'evict_until', told_until,
  'full_until', is_full == 1 and told_until or 0)
return {told_until}
