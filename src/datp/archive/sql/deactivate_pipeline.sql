-- deactivate_pipeline: no version of the pipeline is active.
-- index: the primary key
UPDATE datp_pipeline SET active_version = '' WHERE name = :name
