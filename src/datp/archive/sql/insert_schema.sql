-- insert_schema: a migration was applied.
-- index: the primary key
INSERT INTO datp_schema (version, name, applied_at) VALUES (:version, :name, :applied_at)
