-- owe_expired: everybody is to be told of these, which were just expired.
-- index: the primary key
INSERT INTO datp_transfer_event (transfer, version, kind, at, deadline, due_at, attempts, note)
SELECT id, version, 'expired', changed_at, expiration, changed_at, 0, '' FROM datp_transfer WHERE id IN (:ids)
