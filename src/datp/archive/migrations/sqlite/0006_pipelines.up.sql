-- What is written about pipelines beside their versions: a draft of the next one, and test cases.

CREATE TABLE datp_pipeline_draft (
  name       TEXT NOT NULL PRIMARY KEY,
  definition TEXT NOT NULL,
  author     TEXT NOT NULL,
  saved_at   INTEGER NOT NULL
) STRICT;

CREATE TABLE datp_pipeline_test (
  pipeline TEXT NOT NULL,
  place    INTEGER NOT NULL,
  test     TEXT NOT NULL,
  PRIMARY KEY (pipeline, place)
) STRICT;
