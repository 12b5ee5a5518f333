-- delete_draft: a pipeline has no draft.
-- index: the primary key
DELETE FROM datp_pipeline_draft WHERE name = :name
