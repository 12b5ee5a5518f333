-- delete_schema: a migration was taken back.
-- index: the primary key
DELETE FROM datp_schema WHERE version = :version
