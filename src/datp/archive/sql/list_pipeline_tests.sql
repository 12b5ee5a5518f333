-- list_pipeline_tests: the test cases of a pipeline, in their order.
-- index: the primary key
SELECT test FROM datp_pipeline_test WHERE pipeline = :pipeline ORDER BY place
