-- What is written about pipelines beside their versions: a draft of the next one, and test cases.

CREATE TABLE datp_pipeline_draft (
  name       varchar(260) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  definition longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  author     varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  saved_at   bigint NOT NULL
) ENGINE = InnoDB;

CREATE TABLE datp_pipeline_test (
  pipeline varchar(260) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  place    bigint NOT NULL,
  test     longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  PRIMARY KEY (pipeline, place)
) ENGINE = InnoDB;
