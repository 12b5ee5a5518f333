-- insert_node_group: a node group is known; one that is there stays as it is.
-- index: the primary key
INSERT INTO datp_node_group (name, settings) VALUES (:name, :settings)
ON DUPLICATE KEY UPDATE name = VALUES(name)
