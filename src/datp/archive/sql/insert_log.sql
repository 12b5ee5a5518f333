-- insert_log: entries of the logbook are written.
-- index: the primary key
INSERT INTO datp_log (tx_id, step_id, at_ms, level, source, text)
VALUES (
  :tx_id, :step_id, :at_ms, :level, :source, :text
)
