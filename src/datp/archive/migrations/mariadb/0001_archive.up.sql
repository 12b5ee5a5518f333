-- The archive: which store is archived here, and a row for each transaction.

CREATE TABLE datp_store (
  one        tinyint PRIMARY KEY CHECK (one = 1),
  store_id   varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  epoch      bigint NOT NULL,
  partitions int NOT NULL
) ENGINE = InnoDB;

-- Every text is compared byte by byte, as on the other databases; nopad: a blank at the end makes another externalId.
CREATE TABLE datp_transaction (
  tx_id            char(28) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  version          bigint NOT NULL,
  sequence         bigint NOT NULL,
  phase            varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status           varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  is_final         tinyint NOT NULL,
  owner            varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  type             varchar(260) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  pipeline_version varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  node_group       varchar(260) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  external_id      varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
  request_hash     varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  parent           char(28) CHARACTER SET ascii COLLATE ascii_bin,
  started_at       bigint NOT NULL,
  ended_at         bigint,
  reply_owed       tinyint NOT NULL,
  encoding         varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  document         longblob NOT NULL
) ENGINE = InnoDB;

-- Search, newest first. A search that names no status merges one range of an index for each status. MariaDB has no
-- partial indexes: parent stands in them, so that branches cost a search nothing. At the end of each is the primary key.
CREATE INDEX datp_transaction_status ON datp_transaction (status, parent, started_at);
CREATE INDEX datp_transaction_type ON datp_transaction (type, status, parent, started_at);
CREATE INDEX datp_transaction_owner ON datp_transaction (owner, status, parent, started_at);
CREATE INDEX datp_transaction_owner_type ON datp_transaction (owner, type, status, parent, started_at);
CREATE INDEX datp_transaction_external_id ON datp_transaction (external_id, owner);

-- Branches are found through their parent, and deleted with it.
CREATE INDEX datp_transaction_parent ON datp_transaction (parent);

-- The reconciler's and the rebuild's pages.
CREATE INDEX datp_transaction_live ON datp_transaction (is_final);
CREATE INDEX datp_transaction_owed ON datp_transaction (reply_owed, is_final);
CREATE INDEX datp_transaction_ended ON datp_transaction (ended_at);
