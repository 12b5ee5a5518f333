-- list_drafts: which pipelines have a draft.
-- index: the primary key
SELECT name, author, saved_at FROM datp_pipeline_draft ORDER BY name
