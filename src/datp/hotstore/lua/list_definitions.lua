#!lua
--[[
list_definitions: which version of each pipeline is active, and the settings of each node group.

reads
  pipelines
  node_group
args
  whole  1: the lists too; 0: only how often each was changed, for watching
returns
  changes of pipelines, changes of node groups, pipelines (name, version, …), node groups (name, JSON, …),
  the last changes of both in SQL that are known here
]]
local pipelines = redis.call('HMGET', pipelines_key, ':changes', ':published')
local groups = redis.call('HMGET', node_group_key, ':changes', ':published')
local listed = {{}, {}}
if whole == 1 then listed = {redis.call('HGETALL', pipelines_key), redis.call('HGETALL', node_group_key)} end
return {pipelines[1] or 0, groups[1] or 0, listed[1], listed[2], pipelines[2] or 0, groups[2] or 0}
