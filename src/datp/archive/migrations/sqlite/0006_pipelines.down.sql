-- Drafts and test cases are gone.

DROP TABLE datp_pipeline_test;

DROP TABLE datp_pipeline_draft;
