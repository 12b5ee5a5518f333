#!lua
--[[
save_pipelines: versions of pipelines are stored, and made the active ones where that is asked for.

writes
  pipeline
  pipelines
items
  pipeline
  version
  definition  JSON; '' when the version is there already
  activate    1: new transactions take this version from now on
returns
  OK          1 if the version is new
refuses
  NO_VERSION  there is no such version to activate
]]
return each(function(item)
  local pipeline, version, definition, activate = read_item(item)
  local key = pipeline_key(pipeline)
  local is_new = 0
  if definition ~= '' then
    is_new = redis.call('HSETNX', key, 'v:' .. version, definition)
  elseif redis.call('HEXISTS', key, 'v:' .. version) == 0 then
    return refuse('NO_VERSION', version)
  end
  if activate == 1 then
    redis.call('HSET', key, 'active', version)
    redis.call('HSET', pipelines_key, pipeline, version)
  elseif redis.call('HEXISTS', pipelines_key, pipeline) == 0 then
    redis.call('HSET', pipelines_key, pipeline, '')
  end
  redis.call('HINCRBY', pipelines_key, ':changes', 1)
  return {'OK', is_new}
end)
