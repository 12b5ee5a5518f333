#!lua
--[[
report_progress: a running transaction's progress report is stored, and told; an equal report changes nothing.

includes
  run
  notify
  webhook
writes
  state
items
  tx_id
  token
  report     JSON with its keys in order, so that equal reports are equal texts
returns
  OK         version
  SAME       nothing changed
  VERDICT    status, note: it is to end, and reports no more
refuses
  NO_STATE     there is no such state
  STALE_TOKEN  somebody else runs it, or nobody
]]
return each(function(item)
  local tx_id, token, report = read_item(item)
  local refused, run = open_run(tx_id, token)
  if refused then return refused end
  local verdict = verdict_against(run, run.undoing or '')
  if verdict then return verdict end
  local stored, parent, webhook = unpack(redis.call('HMGET', state_key(tx_id), 'progress', 'parent', 'webhook'))
  if stored == report then return {'SAME'} end
  local wants_reports = webhook and webhook ~= '' and cjson.decode(webhook).progress
  local version = next_version(run.version)
  redis.call('HSET', state_key(tx_id), 'progress', report, 'version', version, 'sequence', version)
  if not parent then
    notify(tx_id, 'running', version)
    if wants_reports then owe_webhook(tx_id, 'transaction.progress') end
  end
  return {'OK', version}
end)
