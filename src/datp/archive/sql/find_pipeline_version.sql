-- find_pipeline_version: a version of a pipeline, as it was stored.
-- index: the primary key
SELECT definition FROM datp_pipeline_version WHERE name = :name AND version = :version
