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

-- Lua's stack holds some 8000 values, and a batch may have more.
local function in_pieces(values, write)
  for first = 1, #values, 1000 do write(unpack(values, first, math.min(first + 999, #values))) end
end

at_end[#at_end + 1] = function()
  for _, key in ipairs(removed_order) do
    in_pieces(removed[key], function(...) redis.call('ZREM', key, ...) end)
  end
  for _, key in ipairs(added_order) do
    in_pieces(added[key], function(...) redis.call('ZADD', key, ...) end)
  end
end
