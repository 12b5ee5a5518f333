-- delete_pipeline_tests: a pipeline has no test cases.
-- index: the primary key
DELETE FROM datp_pipeline_test WHERE pipeline = :pipeline
