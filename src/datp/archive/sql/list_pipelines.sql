-- list_pipelines: which version of each pipeline is active.
-- index: the primary key
SELECT name, active_version FROM datp_pipeline ORDER BY name
