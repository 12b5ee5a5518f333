-- save_draft: the draft of a pipeline is this one.
-- index: the primary key
INSERT INTO datp_pipeline_draft (name, definition, author, saved_at) VALUES (:name, :definition, :author, :saved_at)
ON DUPLICATE KEY UPDATE definition = VALUES(definition), author = VALUES(author), saved_at = VALUES(saved_at)
