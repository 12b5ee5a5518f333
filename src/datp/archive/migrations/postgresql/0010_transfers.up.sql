-- Transfers: participants with their positions, transfers with their history, and what is still to be told of them.
-- Amounts are whole numbers of the currency's smallest unit; times are milliseconds since 1970 UTC.

CREATE TABLE datp_participant (
  owner      text COLLATE "C" NOT NULL,
  name       text COLLATE "C" NOT NULL,
  webhook    text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (owner, name)
);

CREATE TABLE datp_position (
  owner         text COLLATE "C" NOT NULL,
  participant   text COLLATE "C" NOT NULL,
  currency      text COLLATE "C" NOT NULL,
  liquidity     bigint NOT NULL,
  net_debit_cap bigint,
  position      bigint NOT NULL,
  PRIMARY KEY (owner, participant, currency)
);

CREATE TABLE datp_transfer (
  id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  owner            text COLLATE "C" NOT NULL,
  transfer_id      text COLLATE "C" NOT NULL,
  request_hash     text COLLATE "C" NOT NULL,
  payer            text COLLATE "C" NOT NULL,
  payee            text COLLATE "C" NOT NULL,
  currency         text COLLATE "C" NOT NULL,
  amount           bigint NOT NULL,
  state            text COLLATE "C" NOT NULL,
  version          bigint NOT NULL,
  expiration       bigint,
  condition_digest text COLLATE "C" NOT NULL,
  fulfilment       text COLLATE "C" NOT NULL,
  tx_id            text COLLATE "C" NOT NULL,
  switch           text COLLATE "C" NOT NULL,
  error_code       text COLLATE "C" NOT NULL,
  error_text       text COLLATE "C" NOT NULL,
  created_at       bigint NOT NULL,
  changed_at       bigint NOT NULL,
  UNIQUE (owner, transfer_id)
);

-- Every deadline that is still to come or due: the sweep and the list of what is due soon read a range of it.
CREATE INDEX datp_transfer_due ON datp_transfer (expiration) WHERE state IN ('RECEIVED_PREPARE', 'RESERVED');

-- An owner's transfers in a state, the newest first.
CREATE INDEX datp_transfer_owner ON datp_transfer (owner, state, id);

-- What happened, in order; nothing here is ever changed.
CREATE TABLE datp_transfer_change (
  transfer bigint NOT NULL,
  version  bigint NOT NULL,
  state    text COLLATE "C" NOT NULL,
  reason   text COLLATE "C" NOT NULL,
  at       bigint NOT NULL,
  PRIMARY KEY (transfer, version)
);

-- What parties and waiting transactions are to be told; due_at is NULL once they were.
CREATE TABLE datp_transfer_event (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  transfer bigint NOT NULL,
  version  bigint NOT NULL,
  kind     text COLLATE "C" NOT NULL,
  at       bigint NOT NULL,
  deadline bigint,
  due_at   bigint,
  attempts bigint NOT NULL,
  told_at  bigint,
  note     text COLLATE "C" NOT NULL,
  UNIQUE (transfer, version, kind)
);

CREATE INDEX datp_transfer_event_due ON datp_transfer_event (due_at) WHERE due_at IS NOT NULL;

-- Late fulfilments, and how late expiries were told, the newest first.
CREATE INDEX datp_transfer_event_kind ON datp_transfer_event (kind, id);

-- How far a history that somebody else appends to was read, and which of its transfers are pending.
CREATE TABLE datp_segment (
  source       text COLLATE "C" NOT NULL,
  segment_type text COLLATE "C" NOT NULL,
  enumeration  bigint NOT NULL,
  table_name   text COLLATE "C" NOT NULL,
  value        bigint NOT NULL,
  changed_date bigint NOT NULL,
  PRIMARY KEY (source, segment_type, enumeration, table_name)
);

-- Ids below a segment's value that were not there when it was passed: they may be committed later.
CREATE TABLE datp_segment_gap (
  source   text COLLATE "C" NOT NULL,
  first_id bigint NOT NULL,
  last_id  bigint NOT NULL,
  seen_at  bigint NOT NULL,
  PRIMARY KEY (source, first_id)
);

CREATE TABLE datp_transfer_timeout (
  source      text COLLATE "C" NOT NULL,
  transfer_id text COLLATE "C" NOT NULL,
  expiration  bigint NOT NULL,
  created_at  bigint NOT NULL,
  PRIMARY KEY (source, transfer_id)
);

CREATE INDEX datp_transfer_timeout_due ON datp_transfer_timeout (source, expiration);

-- Each transfer of another history that was found to be due, once.
CREATE TABLE datp_transfer_timed_out (
  source      text COLLATE "C" NOT NULL,
  transfer_id text COLLATE "C" NOT NULL,
  expiration  bigint NOT NULL,
  found_at    bigint NOT NULL,
  due_at      bigint,
  attempts    bigint NOT NULL,
  told_at     bigint,
  PRIMARY KEY (source, transfer_id)
);
