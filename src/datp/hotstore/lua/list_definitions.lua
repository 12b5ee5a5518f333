#!lua
--[[
list_definitions: which version of each pipeline is active, and the settings of each node group.

reads
  pipelines
  node_group
args
  whole  1: the lists too; 0: only how often each was changed, for watching
returns
  changes of pipelines, changes of node groups, pipelines (name, version, …), node groups (name, JSON, …)
]]
local changes = {redis.call('HGET', pipelines_key, ':changes') or 0, redis.call('HGET', node_group_key, ':changes') or 0}
if whole ~= 1 then return {changes[1], changes[2], {}, {}} end
return {changes[1], changes[2], redis.call('HGETALL', pipelines_key), redis.call('HGETALL', node_group_key)}
