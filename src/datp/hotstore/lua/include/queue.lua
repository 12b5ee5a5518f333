--[[
queue: ids go to the end of a queue (or back to its head), and the bell is rung; or they are withdrawn.

writes
  queue
  bell
  groups
  withdrawn
]]
local pushed, pushed_order = {}, {}

-- A hint for idle nodes: one element is enough, whoever hears it rings again if work is left.
local function ring(group)
  local bell = bell_key(group)
  if redis.call('LLEN', bell) == 0 then
    redis.call('RPUSH', bell, '1')
    redis.call('PEXPIRE', bell, 600000)
  end
end

local function push(queue, group, tx_id)
  local list = queue_key(queue, group)
  local batch = pushed[list]
  if not batch then
    batch = {group = group}
    pushed[list] = batch
    pushed_order[#pushed_order + 1] = list
  end
  batch[#batch + 1] = tx_id
end

local function push_to_head(queue, group, tx_id)
  redis.call('LPUSH', queue_key(queue, group), tx_id)
  redis.call('SADD', groups_key, group)
  ring(group)
end

-- One that is ended or moved while it is queued: its id stays in the list, and taking it drops it. The mark counts
-- for one such id; a second one is taken out of the list at once, which is slow and rare.
local function withdraw(queue, group, tx_id)
  if redis.call('SADD', withdrawn_key, queue .. ' ' .. group .. ' ' .. tx_id) == 0 then
    redis.call('LREM', queue_key(queue, group), -1, tx_id)
  end
end

at_end[#at_end + 1] = function()
  for _, list in ipairs(pushed_order) do
    local batch = pushed[list]
    -- In pieces, because Lua's stack holds some 8000 values.
    for first = 1, #batch, 1000 do
      redis.call('RPUSH', list, unpack(batch, first, math.min(first + 999, #batch)))
    end
    redis.call('SADD', groups_key, batch.group)
    ring(batch.group)
  end
end
