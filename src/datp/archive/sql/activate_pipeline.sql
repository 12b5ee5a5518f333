-- activate_pipeline: new transactions take this version of the pipeline.
-- index: the primary key
INSERT INTO datp_pipeline (name, active_version) VALUES (:name, :version)
ON CONFLICT (name) DO UPDATE SET active_version = excluded.active_version
