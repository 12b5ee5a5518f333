-- find_draft: the draft of a pipeline.
-- index: the primary key
SELECT definition FROM datp_pipeline_draft WHERE name = :name
