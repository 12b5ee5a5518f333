-- record_expired: the history of these, which were just expired.
-- index: the primary key
INSERT INTO datp_transfer_change (transfer, version, state, reason, at)
SELECT id, version, state, error_text, changed_at FROM datp_transfer WHERE id IN (:ids)
