#!lua flags=allow-oom
--[[
end_parked: an operator ends a parked transaction with a final status; nothing is undone.

includes
  ending
writes
  started
args
  external_id_period_ms
  archive_delay_ms
items
  tx_id
  status     the final status
  note       a sentence for the client
returns
  OK         version; '' when only its id was left
refuses
  NO_STATE    there is no such transaction on the exception list
  NOT_PARKED  its phase
  BAD_STATUS  not a final status
]]
local FINAL = {success = 1, failed = 1, aborted = 1, cancelled = 1, timeout = 1, ['internal-error'] = 1}
return each(function(item)
  local tx_id, status, note = read_item(item)
  if not FINAL[status] then return refuse('BAD_STATUS', status) end
  local tx = load_ending(tx_id)
  if not tx then
    if redis.call('ZREM', exceptions_key, tx_id) == 0 then return refuse('NO_STATE') end
    redis.call('HDEL', reasons_key, tx_id)
    redis.call('ZREM', started_key, tx_id)
    return {'OK', ''}
  end
  if tx.phase ~= 'exception' then return refuse('NOT_PARKED', tx.phase) end
  redis.call('ZREM', exceptions_key, tx_id)
  redis.call('HDEL', reasons_key, tx_id)
  if tx.joined == '1' then redis.call('DEL', join_key(tx_id)) end
  return {'OK', finish(tx_id, tx, status, {'note', note, 'output', 'null', 'joined', ''},
    cjson.encode({status = status, note = note, pipeline = tx.type}))}
end)
