-- The logbook of steps, and how many transactions there were on each day, which stays when they are deleted.

CREATE TABLE datp_log (
  id      INTEGER PRIMARY KEY,
  tx_id   TEXT NOT NULL,
  step_id TEXT NOT NULL,
  at_ms   INTEGER NOT NULL,
  level   INTEGER NOT NULL,
  source  TEXT NOT NULL,
  text    TEXT NOT NULL
) STRICT;

-- A transaction's entries, in the order in which they were written.
CREATE INDEX datp_log_transaction ON datp_log (tx_id, id);

CREATE TABLE datp_rollup (
  day          TEXT NOT NULL,
  owner        TEXT NOT NULL,
  type         TEXT NOT NULL,
  status       TEXT NOT NULL,
  transactions INTEGER NOT NULL,
  PRIMARY KEY (day, owner, type, status)
) STRICT;
