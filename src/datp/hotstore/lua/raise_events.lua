#!lua flags=allow-oom
--[[
raise_events: operators are to be told of these; the same code and subject again is counted.

includes
  raising
items
  code       what has happened, as a word
  subject    to which thing
  text       a sentence
returns
  OK         the event's id
refuses
  FULL       too many wait for SQL already
]]
return each(function(item)
  local code, subject, text = read_item(item)
  local event_id = raise_event(code, subject, text)
  if event_id == '' then return refuse('FULL') end
  return {'OK', event_id}
end)
