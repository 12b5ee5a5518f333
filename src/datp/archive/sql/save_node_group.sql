-- save_node_group: a node group is known, with the settings that its nodes share.
-- index: the primary key
INSERT INTO datp_node_group (name, settings) VALUES (:name, :settings)
ON CONFLICT (name) DO UPDATE SET settings = excluded.settings
