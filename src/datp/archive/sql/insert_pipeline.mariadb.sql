-- insert_pipeline: a pipeline is known, without an active version if it is new.
-- index: the primary key
INSERT INTO datp_pipeline (name, active_version) VALUES (:name, '')
ON DUPLICATE KEY UPDATE name = VALUES(name)
