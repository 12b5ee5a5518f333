-- insert_gap: a range of ids that was passed while nobody was there.
-- index: the primary key
INSERT INTO datp_segment_gap (source, first_id, last_id, seen_at) VALUES (:source, :first_id, :last_id, :now)
