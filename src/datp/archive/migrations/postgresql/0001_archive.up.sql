-- The archive: which store is archived here, and a row for each transaction.

CREATE TABLE datp_store (
  one        smallint PRIMARY KEY CHECK (one = 1),
  store_id   text COLLATE "C" NOT NULL,
  epoch      bigint NOT NULL,
  partitions integer NOT NULL
);

CREATE TABLE datp_transaction (
  tx_id            text COLLATE "C" PRIMARY KEY,
  version          bigint NOT NULL,
  sequence         bigint NOT NULL,
  phase            text COLLATE "C" NOT NULL,
  status           text COLLATE "C" NOT NULL,
  is_final         smallint NOT NULL,
  owner            text COLLATE "C" NOT NULL,
  type             text COLLATE "C" NOT NULL,
  pipeline_version text COLLATE "C" NOT NULL,
  node_group       text COLLATE "C" NOT NULL,
  external_id      text COLLATE "C",
  request_hash     text COLLATE "C" NOT NULL,
  parent           text COLLATE "C",
  started_at       bigint NOT NULL,
  ended_at         bigint,
  reply_owed       smallint NOT NULL,
  encoding         text COLLATE "C" NOT NULL,
  document         bytea NOT NULL
);

-- It is compressed already; PostgreSQL need not try.
ALTER TABLE datp_transaction ALTER COLUMN document SET STORAGE EXTERNAL;

-- Search, newest first. A search that names no status merges one range of an index for each status. What began in the
-- same millisecond is put in order when it is read: with tx_id in these indexes, writing is a quarter slower.
CREATE INDEX datp_transaction_status ON datp_transaction (status, started_at) WHERE parent IS NULL;
CREATE INDEX datp_transaction_type ON datp_transaction (type, status, started_at) WHERE parent IS NULL;
CREATE INDEX datp_transaction_owner ON datp_transaction (owner, status, started_at) WHERE parent IS NULL;
CREATE INDEX datp_transaction_owner_type ON datp_transaction (owner, type, status, started_at)
  WHERE parent IS NULL;
CREATE INDEX datp_transaction_external_id ON datp_transaction (external_id, owner) WHERE external_id IS NOT NULL;

-- Branches are found through their parent, and deleted with it.
CREATE INDEX datp_transaction_parent ON datp_transaction (parent) WHERE parent IS NOT NULL;

-- The reconciler's and the rebuild's pages; finished rows, which are nearly all, are in none of them.
CREATE INDEX datp_transaction_live ON datp_transaction (tx_id) WHERE is_final = 0;
CREATE INDEX datp_transaction_owed ON datp_transaction (tx_id) WHERE is_final = 1 AND reply_owed = 1;
CREATE INDEX datp_transaction_ended ON datp_transaction (ended_at)
  WHERE is_final = 1 AND external_id IS NOT NULL;
