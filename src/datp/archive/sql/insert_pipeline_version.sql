-- insert_pipeline_version: a version of a pipeline is stored; one that is there stays as it is.
-- index: the primary key
INSERT INTO datp_pipeline_version (name, version, definition, created_at)
VALUES (:name, :version, :definition, :created_at)
ON CONFLICT (name, version) DO NOTHING
