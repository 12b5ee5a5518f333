-- list_gaps: ranges of a source's ids that were passed while nobody was there, and are young enough to be looked at again.
-- index: the primary key
SELECT first_id, last_id FROM datp_segment_gap WHERE source = :source AND seen_at > :since ORDER BY first_id
