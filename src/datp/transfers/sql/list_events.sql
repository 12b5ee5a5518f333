-- list_events: an owner's events of a kind with their transfers' ids, the newest first; of all owners for ''.
-- index: datp_transfer_event_kind, and the transfers' primary key
SELECT e.id, t.transfer_id, t.owner, e.kind, e.at, e.deadline, e.told_at, e.note
FROM datp_transfer_event AS e JOIN datp_transfer AS t ON t.id = e.transfer
WHERE e.kind = :kind AND e.id < :before AND (:owner = '' OR t.owner = :owner)
ORDER BY e.id DESC LIMIT :count
