-- Definitions: pipelines with their versions, what node groups share, and how often each was changed.

CREATE TABLE datp_pipeline (
  name           TEXT NOT NULL PRIMARY KEY,
  active_version TEXT NOT NULL
) STRICT;

CREATE TABLE datp_pipeline_version (
  name       TEXT NOT NULL,
  version    TEXT NOT NULL,
  definition TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (name, version)
) STRICT;

CREATE TABLE datp_node_group (
  name     TEXT NOT NULL PRIMARY KEY,
  settings TEXT NOT NULL
) STRICT;

-- One row for each kind, so that watchers can ask cheaply whether anything has changed.
CREATE TABLE datp_change (
  kind    TEXT NOT NULL PRIMARY KEY,
  changes INTEGER NOT NULL
) STRICT;
