-- save_segment: a source's history was read so far.
-- index: the primary key
INSERT INTO datp_segment (source, segment_type, enumeration, table_name, value, changed_date)
VALUES (:source, 'timeout', 0, :table_name, :value, :now)
ON CONFLICT (source, segment_type, enumeration, table_name) DO UPDATE SET
  value = excluded.value, changed_date = excluded.changed_date
