#!lua
--[[
load_pipelines: versions of pipelines, as they were stored.

reads
  pipeline
items
  pipeline
  version     '' for the active one
returns
  OK          version, definition
refuses
  NO_PIPELINE  there is no such pipeline, or none of its versions is active
  NO_VERSION   the pipeline has no such version
]]
return each(function(item)
  local pipeline, version = read_item(item)
  if version == '' then version = redis.call('HGET', pipeline_key(pipeline), 'active') or '' end
  if version == '' then return refuse('NO_PIPELINE') end
  local definition = redis.call('HGET', pipeline_key(pipeline), 'v:' .. version)
  if not definition then return refuse('NO_VERSION', version) end
  return {'OK', version, definition}
end)
