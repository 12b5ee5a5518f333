-- lock_segment: how far a source's history was read; nobody else reads on until this SQL transaction ends.
-- index: the primary key
SELECT value FROM datp_segment
WHERE source = :source AND segment_type = 'timeout' AND enumeration = 0 AND table_name = :table_name FOR UPDATE
