-- recent_lateness: how long after their deadlines the last expiries were told.
-- index: datp_transfer_event_kind
SELECT told_at - deadline FROM datp_transfer_event
WHERE kind = 'expired' AND told_at IS NOT NULL ORDER BY id DESC LIMIT :count
