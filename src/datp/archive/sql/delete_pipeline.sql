-- delete_pipeline: a pipeline without versions is gone.
-- index: the primary key
DELETE FROM datp_pipeline WHERE name = :name
AND NOT EXISTS (SELECT 1 FROM datp_pipeline_version WHERE name = :name)
