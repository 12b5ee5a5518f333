-- find_credential: the owner's credential of a name, before the one that everybody shares.
-- index: the primary key
SELECT owner, name, kind, key_id, sealed, created_at, updated_at
FROM datp_credential
WHERE name = :name AND owner IN (:owners)
ORDER BY owner DESC
LIMIT 1
