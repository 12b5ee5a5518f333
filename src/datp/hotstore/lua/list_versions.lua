#!lua
--[[
list_versions: which versions of pipelines are stored.

reads
  pipeline
items
  pipeline
returns
  OK        version, version, …; none for a pipeline that isn't known
]]
return each(function(item)
  local pipeline = read_item(item)
  local versions = {'OK'}
  for _, field in ipairs(redis.call('HKEYS', pipeline_key(pipeline))) do
    if field:sub(1, 2) == 'v:' then versions[#versions + 1] = field:sub(3) end
  end
  return versions
end)
