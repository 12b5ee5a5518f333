--[[
count: exact counts of what a script did, summed per call, in time slots of three widths (decision 12).

writes
  metric
]]
local SERIES = {
  {name = '1', width_ms = 5000, kept_s = 300},
  {name = '2', width_ms = 100000, kept_s = 7200},
  {name = '3', width_ms = 1000000, kept_s = 86400},
}
local counted, counted_order = {}, {}

local function count(name, by)
  if not counted[name] then
    counted[name] = 0
    counted_order[#counted_order + 1] = name
  end
  counted[name] = counted[name] + (by or 1)
end

at_end[#at_end + 1] = function()
  if #counted_order == 0 then return end
  for _, series in ipairs(SERIES) do
    local slot = math.floor(now / series.width_ms) * series.width_ms / 1000
    local key = metric_key(series.name, string.format('%.0f', slot))
    for _, name in ipairs(counted_order) do
      local total = redis.call('HINCRBY', key, name, counted[name])
      if total == counted[name] then redis.call('EXPIRE', key, series.width_ms / 1000 + series.kept_s) end
    end
  end
end
