-- reseal_credential: the credential is sealed with another key, unless it was changed meanwhile.
-- index: the primary key
UPDATE datp_credential SET key_id = :key_id, sealed = :sealed
WHERE owner = :owner AND name = :name AND sealed = :before
