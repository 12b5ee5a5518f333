-- delete_old_gaps: ranges in which nothing will be committed any more: whoever took their ids has given up.
-- index: the primary key
DELETE FROM datp_segment_gap WHERE source = :source AND seen_at <= :since
