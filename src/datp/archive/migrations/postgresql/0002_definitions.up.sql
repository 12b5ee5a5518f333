-- Definitions: pipelines with their versions, what node groups share, and how often each was changed.

CREATE TABLE datp_pipeline (
  name           text COLLATE "C" NOT NULL PRIMARY KEY,
  active_version text COLLATE "C" NOT NULL
);

CREATE TABLE datp_pipeline_version (
  name       text COLLATE "C" NOT NULL,
  version    text COLLATE "C" NOT NULL,
  definition text NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (name, version)
);

CREATE TABLE datp_node_group (
  name     text COLLATE "C" NOT NULL PRIMARY KEY,
  settings text NOT NULL
);

-- One row for each kind, so that watchers can ask cheaply whether anything has changed.
CREATE TABLE datp_change (
  kind    text COLLATE "C" NOT NULL PRIMARY KEY,
  changes bigint NOT NULL
);
