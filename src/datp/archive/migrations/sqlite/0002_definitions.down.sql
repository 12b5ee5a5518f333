-- Every definition is gone.

DROP TABLE datp_change;

DROP TABLE datp_node_group;

DROP TABLE datp_pipeline_version;

DROP TABLE datp_pipeline;
