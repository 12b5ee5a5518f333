-- insert_log: entries of the logbook are written.
-- index: the primary key
-- rows: datp_log
INSERT INTO datp_log (tx_id, step_id, at_ms, level, source, text)
SELECT tx_id, step_id, at_ms, level, source, text FROM datp_log_rows
