-- The logbook of steps, and how many transactions there were on each day, which stays when they are deleted.

CREATE TABLE datp_log (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tx_id   text COLLATE "C" NOT NULL,
  step_id text COLLATE "C" NOT NULL,
  at_ms   bigint NOT NULL,
  level   smallint NOT NULL,
  source  text NOT NULL,
  text    text NOT NULL
);

-- A transaction's entries, in the order in which they were written.
CREATE INDEX datp_log_transaction ON datp_log (tx_id, id);

CREATE TABLE datp_rollup (
  day          text COLLATE "C" NOT NULL,
  owner        text COLLATE "C" NOT NULL,
  type         text COLLATE "C" NOT NULL,
  status       text COLLATE "C" NOT NULL,
  transactions bigint NOT NULL,
  PRIMARY KEY (day, owner, type, status)
);
