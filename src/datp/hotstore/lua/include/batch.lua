--[[
batch: members of sorted sets are added and removed in one command per call, not one per item.
]]
local added, added_order, removed, removed_order = {}, {}, {}, {}

local function add(key, score, member)
  local batch = added[key]
  if not batch then
    batch = {}
    added[key] = batch
    added_order[#added_order + 1] = key
  end
  batch[#batch + 1] = score
  batch[#batch + 1] = member
end

local function remove(key, member)
  local batch = removed[key]
  if not batch then
    batch = {}
    removed[key] = batch
    removed_order[#removed_order + 1] = key
  end
  batch[#batch + 1] = member
end

at_end[#at_end + 1] = function()
  for _, key in ipairs(removed_order) do redis.call('ZREM', key, unpack(removed[key])) end
  for _, key in ipairs(added_order) do redis.call('ZADD', key, unpack(added[key])) end
end
