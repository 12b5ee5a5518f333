#!lua flags=allow-oom
--[[
cancel: transactions are to end `cancelled`: at once where they are at rest; what runs is asked, and fenced after a grace.

includes
  ending
args
  external_id_period_ms
  archive_delay_ms
  cancel_grace_ms  how long a running step may take to end by itself
items
  tx_id
  note       who or what cancels, for the client
returns
  OK         cancelled: it ended, or a worker undoes what was done
  ASKED      cancelled: its step, or its branches, are asked to end
  ALREADY    the verdict that came first
refuses
  NO_STATE   there is no such state
  EVICTED    the version that SQL holds: restore it, and cancel in the same call
  FINAL      the final status that it has
  UNDOING    the status that it undoes for; nothing changes that any more
]]
return each(function(item)
  local tx_id, note = read_item(item)
  return apply_verdict(tx_id, 'cancelled', note, cancel_grace_ms, false)
end)
