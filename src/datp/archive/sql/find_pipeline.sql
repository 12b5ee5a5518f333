-- find_pipeline: which version of a pipeline is active.
-- index: the primary key
SELECT active_version FROM datp_pipeline WHERE name = :name
