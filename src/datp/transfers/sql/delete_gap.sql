-- delete_gap: a range that is looked at no more.
-- index: the primary key
DELETE FROM datp_segment_gap WHERE source = :source AND first_id = :first_id
