-- list_pipeline_versions: a page of the versions of all pipelines, without what they say.
-- index: the primary key
SELECT name, version FROM datp_pipeline_version
WHERE name >= :after_name AND (name > :after_name OR version > :after_version)
ORDER BY name, version
LIMIT :count
