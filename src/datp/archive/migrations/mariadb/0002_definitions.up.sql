-- Definitions: pipelines with their versions, what node groups share, and how often each was changed.

CREATE TABLE datp_pipeline (
  name           varchar(260) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  active_version varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB;

CREATE TABLE datp_pipeline_version (
  name       varchar(260) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version    varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  definition longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (name, version)
) ENGINE = InnoDB;

CREATE TABLE datp_node_group (
  name     varchar(260) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  settings longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL
) ENGINE = InnoDB;

-- One row for each kind, so that watchers can ask cheaply whether anything has changed.
CREATE TABLE datp_change (
  kind    varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  changes bigint NOT NULL
) ENGINE = InnoDB;
