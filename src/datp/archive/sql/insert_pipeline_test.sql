-- insert_pipeline_test: a test case of a pipeline is kept, at its place among the others.
-- index: the primary key
INSERT INTO datp_pipeline_test (pipeline, place, test) VALUES (:pipeline, :place, :test)
