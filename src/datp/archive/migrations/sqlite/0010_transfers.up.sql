-- Transfers: participants with their positions, transfers with their history, and what is still to be told of them.
-- Amounts are whole numbers of the currency's smallest unit; times are milliseconds since 1970 UTC.

CREATE TABLE datp_participant (
  owner      TEXT NOT NULL,
  name       TEXT NOT NULL,
  webhook    TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (owner, name)
) STRICT;

CREATE TABLE datp_position (
  owner         TEXT NOT NULL,
  participant   TEXT NOT NULL,
  currency      TEXT NOT NULL,
  liquidity     INTEGER NOT NULL,
  net_debit_cap INTEGER,
  position      INTEGER NOT NULL,
  PRIMARY KEY (owner, participant, currency)
) STRICT;

CREATE TABLE datp_transfer (
  id               INTEGER PRIMARY KEY,
  owner            TEXT NOT NULL,
  transfer_id      TEXT NOT NULL,
  request_hash     TEXT NOT NULL,
  payer            TEXT NOT NULL,
  payee            TEXT NOT NULL,
  currency         TEXT NOT NULL,
  amount           INTEGER NOT NULL,
  state            TEXT NOT NULL,
  version          INTEGER NOT NULL,
  expiration       INTEGER,
  condition_digest TEXT NOT NULL,
  fulfilment       TEXT NOT NULL,
  tx_id            TEXT NOT NULL,
  switch           TEXT NOT NULL,
  error_code       TEXT NOT NULL,
  error_text       TEXT NOT NULL,
  created_at       INTEGER NOT NULL,
  changed_at       INTEGER NOT NULL,
  UNIQUE (owner, transfer_id)
) STRICT;

-- Every deadline that is still to come or due: the sweep and the list of what is due soon read a range of it.
CREATE INDEX datp_transfer_due ON datp_transfer (expiration) WHERE state IN ('RECEIVED_PREPARE', 'RESERVED');

-- An owner's transfers in a state, the newest first.
CREATE INDEX datp_transfer_owner ON datp_transfer (owner, state, id);

-- What happened, in order; nothing here is ever changed.
CREATE TABLE datp_transfer_change (
  transfer INTEGER NOT NULL,
  version  INTEGER NOT NULL,
  state    TEXT NOT NULL,
  reason   TEXT NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (transfer, version)
) STRICT, WITHOUT ROWID;

-- What parties and waiting transactions are to be told; due_at is NULL once they were.
CREATE TABLE datp_transfer_event (
  id       INTEGER PRIMARY KEY,
  transfer INTEGER NOT NULL,
  version  INTEGER NOT NULL,
  kind     TEXT NOT NULL,
  at       INTEGER NOT NULL,
  deadline INTEGER,
  due_at   INTEGER,
  attempts INTEGER NOT NULL,
  told_at  INTEGER,
  note     TEXT NOT NULL,
  UNIQUE (transfer, version, kind)
) STRICT;

CREATE INDEX datp_transfer_event_due ON datp_transfer_event (due_at) WHERE due_at IS NOT NULL;

-- Late fulfilments, and how late expiries were told, the newest first.
CREATE INDEX datp_transfer_event_kind ON datp_transfer_event (kind, id);

-- How far a history that somebody else appends to was read, and which of its transfers are pending.
CREATE TABLE datp_segment (
  source       TEXT NOT NULL,
  segment_type TEXT NOT NULL,
  enumeration  INTEGER NOT NULL,
  table_name   TEXT NOT NULL,
  value        INTEGER NOT NULL,
  changed_date INTEGER NOT NULL,
  PRIMARY KEY (source, segment_type, enumeration, table_name)
) STRICT;

-- Ids below a segment's value that were not there when it was passed: they may be committed later.
CREATE TABLE datp_segment_gap (
  source   TEXT NOT NULL,
  first_id INTEGER NOT NULL,
  last_id  INTEGER NOT NULL,
  seen_at  INTEGER NOT NULL,
  PRIMARY KEY (source, first_id)
) STRICT;

CREATE TABLE datp_transfer_timeout (
  source      TEXT NOT NULL,
  transfer_id TEXT NOT NULL,
  expiration  INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (source, transfer_id)
) STRICT;

CREATE INDEX datp_transfer_timeout_due ON datp_transfer_timeout (source, expiration);

-- Each transfer of another history that was found to be due, once.
CREATE TABLE datp_transfer_timed_out (
  source      TEXT NOT NULL,
  transfer_id TEXT NOT NULL,
  expiration  INTEGER NOT NULL,
  found_at    INTEGER NOT NULL,
  due_at      INTEGER,
  attempts    INTEGER NOT NULL,
  told_at     INTEGER,
  PRIMARY KEY (source, transfer_id)
) STRICT;
