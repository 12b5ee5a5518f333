#!lua
--[[
deactivate_pipelines: no version of these pipelines is active: nothing new takes one, and what has one goes on with it.

writes
  pipeline
  pipelines
args
  change   the number of this change in SQL, which has it already; 0: no database keeps the definitions
items
  pipeline
returns
  OK
refuses
  NO_PIPELINE  there is no such pipeline
  IN_SQL       the definitions of this store are kept in SQL: it has to have them first
]]
local published = tonumber(redis.call('HGET', pipelines_key, ':published') or 0)
if change > published then redis.call('HSET', pipelines_key, ':published', text_of(change)) end
return each(function(item)
  local pipeline = read_item(item)
  if change == 0 and published > 0 then return refuse('IN_SQL') end
  if redis.call('HEXISTS', pipelines_key, pipeline) == 0 then return refuse('NO_PIPELINE') end
  -- Two who change the same pipeline may come here in another order than they came to SQL.
  if change >= tonumber(redis.call('HGET', pipeline_key(pipeline), 'change') or 0) then
    redis.call('HSET', pipeline_key(pipeline), 'active', '', 'change', text_of(change))
    redis.call('HSET', pipelines_key, pipeline, '')
  end
  redis.call('HINCRBY', pipelines_key, ':changes', 1)
  return {'OK'}
end)
