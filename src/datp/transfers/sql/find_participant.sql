-- find_participant: whether an owner has a participant, and who tells it.
-- index: the primary key
SELECT name, webhook, created_at FROM datp_participant WHERE owner = :owner AND name = :name
