-- delete_pipeline_version: a version of a pipeline is gone, unless it is the active one.
-- index: the primary key
DELETE FROM datp_pipeline_version WHERE name = :name AND version = :version
AND NOT EXISTS (SELECT 1 FROM datp_pipeline WHERE name = :name AND active_version = :version)
