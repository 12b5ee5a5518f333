#!lua
--[[
save_pipelines: versions of pipelines are stored, and made the active ones where that is asked for.

writes
  pipeline
  pipelines
args
  change      the number of this change in SQL, which has it already; 0: no database keeps the definitions
items
  pipeline
  version
  definition  JSON; '' when the version is there already
  activate    1: new transactions take this version from now on
returns
  OK          1 if the version is new
refuses
  NO_VERSION  there is no such version to activate
  IN_SQL      the definitions of this store are kept in SQL: it has to have them first
]]
local published = tonumber(redis.call('HGET', pipelines_key, ':published') or 0)
if change > published then redis.call('HSET', pipelines_key, ':published', text_of(change)) end
return each(function(item)
  local pipeline, version, definition, activate = read_item(item)
  local key = pipeline_key(pipeline)
  local is_new = 0
  if change == 0 and published > 0 then return refuse('IN_SQL') end
  if definition ~= '' then
    is_new = redis.call('HSETNX', key, 'v:' .. version, definition)
  elseif redis.call('HEXISTS', key, 'v:' .. version) == 0 then
    return refuse('NO_VERSION', version)
  end
  -- Two who change the same pipeline may come here in another order than they came to SQL.
  if activate == 1 and change >= tonumber(redis.call('HGET', key, 'change') or 0) then
    redis.call('HSET', key, 'active', version, 'change', text_of(change))
    redis.call('HSET', pipelines_key, pipeline, version)
  elseif redis.call('HEXISTS', pipelines_key, pipeline) == 0 then
    redis.call('HSET', pipelines_key, pipeline, '')
  end
  redis.call('HINCRBY', pipelines_key, ':changes', 1)
  return {'OK', is_new}
end)
