-- save_segment: a source's history was read so far.
-- index: the primary key
INSERT INTO datp_segment (source, segment_type, enumeration, table_name, value, changed_date)
VALUES (:source, 'timeout', 0, :table_name, :value, :now)
ON DUPLICATE KEY UPDATE value = VALUES(value), changed_date = VALUES(changed_date)
