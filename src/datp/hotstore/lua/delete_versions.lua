#!lua
--[[
delete_versions: these versions are gone; with its last version, so is a pipeline. Who calls has looked for their users.

writes
  pipeline
  pipelines
args
  change   the number of this change in SQL, which has it already; 0: no database keeps the definitions
items
  pipeline
  version
returns
  OK          1 if the pipeline is gone
refuses
  NO_VERSION  there is no such version
  ACTIVE      new transactions take it
  IN_SQL      the definitions of this store are kept in SQL: it has to have them first
]]
local published = tonumber(redis.call('HGET', pipelines_key, ':published') or 0)
if change > published then redis.call('HSET', pipelines_key, ':published', text_of(change)) end
return each(function(item)
  local pipeline, version = read_item(item)
  local key = pipeline_key(pipeline)
  if change == 0 and published > 0 then return refuse('IN_SQL') end
  if redis.call('HGET', key, 'active') == version then return refuse('ACTIVE') end
  if redis.call('HDEL', key, 'v:' .. version) == 0 then return refuse('NO_VERSION', version) end
  local is_gone = 1
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if field:sub(1, 2) == 'v:' then is_gone = 0 end
  end
  if is_gone == 1 then
    redis.call('DEL', key)
    redis.call('HDEL', pipelines_key, pipeline)
  end
  redis.call('HINCRBY', pipelines_key, ':changes', 1)
  return {'OK', is_gone}
end)
