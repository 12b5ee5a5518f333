#!lua flags=allow-oom
--[[
complete: transactions have their final status; the client is told, archiving is scheduled, a branch is counted.

includes
  run
  ending
args
  external_id_period_ms  how long an externalId is kept after the end
  archive_delay_ms       how long archiving waits, so that notifiedTime joins the same write
items
  tx_id
  token
  status         the final status
  note           a sentence for the client, or ''
  output         JSON
  branch_result  for a branch: what it leaves for its parent, JSON; else ''
bodies
  state          the document
returns
  OK             version
  ALREADY        what the same call answered before
  VERDICT        status, note: a deadline or a cancel came first, and the run must end with that
refuses
  NO_STATE       there is no such state
  STALE_TOKEN    somebody else runs it, or nobody
  BAD_STATUS     not a final status
]]
local FINAL = {success = 1, failed = 1, aborted = 1, cancelled = 1, timeout = 1, ['internal-error'] = 1}
return each(function(item, state)
  local tx_id, token, status, note, output, branch_result = read_item(item)
  local tx = load_ending(tx_id)
  local refused = token_refused(tx_id, token, tx and tx.phase, tx and tx.token, tx and tx.ended)
  if refused then return refused end
  if not FINAL[status] then return refuse('BAD_STATUS', status) end
  local verdict = verdict_against(tx, status)
  if verdict then return verdict end
  close_run(tx_id, tx)
  return {'OK', finish(tx_id, tx, status,
    {'note', note, 'output', output, 'state', state, 'joined', '',
      'ended', ended_by(token, 'OK', next_version(tx.version))}, branch_result)}
end)
