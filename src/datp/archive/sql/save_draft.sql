-- save_draft: the draft of a pipeline is this one.
-- index: the primary key
INSERT INTO datp_pipeline_draft (name, definition, author, saved_at) VALUES (:name, :definition, :author, :saved_at)
ON CONFLICT (name) DO UPDATE
SET definition = excluded.definition, author = excluded.author, saved_at = excluded.saved_at
