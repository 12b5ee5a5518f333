-- list_node_groups: what the nodes of each group share.
-- index: the primary key
SELECT name, settings FROM datp_node_group ORDER BY name
