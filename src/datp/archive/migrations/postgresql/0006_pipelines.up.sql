-- What is written about pipelines beside their versions: a draft of the next one, and test cases.

CREATE TABLE datp_pipeline_draft (
  name       text COLLATE "C" NOT NULL PRIMARY KEY,
  definition text NOT NULL,
  author     text NOT NULL,
  saved_at   bigint NOT NULL
);

CREATE TABLE datp_pipeline_test (
  pipeline text COLLATE "C" NOT NULL,
  place    bigint NOT NULL,
  test     text NOT NULL,
  PRIMARY KEY (pipeline, place)
);
