--[[
prelude: what every script begins with: who the store is, what time it is, and one result per item.

reads
  meta
]]
local known = redis.call('HMGET', meta_key, 'identity', 'clock')
if known[1] ~= ARGV[1] then
  return redis.error_reply('STORELOST ' .. (known[1] or 'empty'))
end

-- The store's clock decides (decision 6); the caller's counts only where the store says that it is held.
local now
if known[2] == 'held' then
  now = tonumber(ARGV[2])
else
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A field that was never written is false, one that was cleared is ''.
local function has(value)
  return value and value ~= ''
end

local function refuse(code, detail)
  return {code, detail or ''}
end

-- A store that lost writes never reuses a version, because it is also a time (decision 7).
local function next_version(previous)
  previous = tonumber(previous or 0)
  if now > previous then return now end
  return previous + 1
end

-- A number as text, in full. Most versions of a call are the same number: its text is made once.
local last_number, last_text
local function text_of(number)
  if number ~= last_number then last_number, last_text = number, string.format('%.0f', number) end
  return last_text
end

-- What several items share (one ZADD, one PUBLISH, one count) is written once, when all have been handled.
local at_end = {}

-- Every item is handled alone: one that raises gets its own refusal and never hurts its neighbours.
local function each(handle)
  local results = {}
  for index = 1, #items do
    local fine, result = pcall(handle, items[index], ARGV[3 + index], index)
    if not fine then
      result = refuse('RAISED', type(result) == 'table' and (result.err or result[1]) or tostring(result))
    end
    results[index] = result
  end
  for _, finish_batch in ipairs(at_end) do finish_batch() end
  return results
end
