-- list_participants: an owner's participants, by name.
-- index: the primary key
SELECT name, webhook, created_at FROM datp_participant
WHERE owner = :owner AND name > :after ORDER BY name LIMIT :count
