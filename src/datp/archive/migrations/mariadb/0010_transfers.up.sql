-- Transfers: participants with their positions, transfers with their history, and what is still to be told of them.
-- Amounts are whole numbers of the currency's smallest unit; times are milliseconds since 1970 UTC.

CREATE TABLE datp_participant (
  owner      varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name       varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  webhook    varchar(2000) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (owner, name)
) ENGINE = InnoDB;

CREATE TABLE datp_position (
  owner         varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  participant   varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  currency      varchar(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  liquidity     bigint NOT NULL,
  net_debit_cap bigint,
  position      bigint NOT NULL,
  PRIMARY KEY (owner, participant, currency)
) ENGINE = InnoDB;

CREATE TABLE datp_transfer (
  id               bigint AUTO_INCREMENT PRIMARY KEY,
  owner            varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  transfer_id      varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  request_hash     varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  payer            varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  payee            varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  currency         varchar(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount           bigint NOT NULL,
  state            varchar(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version          bigint NOT NULL,
  expiration       bigint,
  condition_digest varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  fulfilment       varchar(1000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  tx_id            varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  switch           varchar(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  error_code       varchar(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  error_text       varchar(250) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  created_at       bigint NOT NULL,
  changed_at       bigint NOT NULL,
  -- MariaDB has no partial indexes: what is not pending has no place in this one.
  due              bigint AS (CASE WHEN state IN ('RECEIVED_PREPARE', 'RESERVED') THEN expiration END) VIRTUAL,
  UNIQUE (owner, transfer_id)
) ENGINE = InnoDB;

-- Every deadline that is still to come or due: the sweep and the list of what is due soon read a range of it.
CREATE INDEX datp_transfer_due ON datp_transfer (due);

-- An owner's transfers in a state, the newest first.
CREATE INDEX datp_transfer_owner ON datp_transfer (owner, state, id);

-- What happened, in order; nothing here is ever changed.
CREATE TABLE datp_transfer_change (
  transfer bigint NOT NULL,
  version  bigint NOT NULL,
  state    varchar(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason   varchar(250) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  at       bigint NOT NULL,
  PRIMARY KEY (transfer, version)
) ENGINE = InnoDB;

-- What parties and waiting transactions are to be told; due_at is NULL once they were.
CREATE TABLE datp_transfer_event (
  id       bigint AUTO_INCREMENT PRIMARY KEY,
  transfer bigint NOT NULL,
  version  bigint NOT NULL,
  kind     varchar(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at       bigint NOT NULL,
  deadline bigint,
  due_at   bigint,
  attempts bigint NOT NULL,
  told_at  bigint,
  note     varchar(250) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  UNIQUE (transfer, version, kind)
) ENGINE = InnoDB;

CREATE INDEX datp_transfer_event_due ON datp_transfer_event (due_at);

-- Late fulfilments, and how late expiries were told, the newest first.
CREATE INDEX datp_transfer_event_kind ON datp_transfer_event (kind, id);

-- How far a history that somebody else appends to was read, and which of its transfers are pending.
CREATE TABLE datp_segment (
  source       varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  segment_type varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  enumeration  bigint NOT NULL,
  table_name   varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  value        bigint NOT NULL,
  changed_date bigint NOT NULL,
  PRIMARY KEY (source, segment_type, enumeration, table_name)
) ENGINE = InnoDB;

-- Ids below a segment's value that were not there when it was passed: they may be committed later.
CREATE TABLE datp_segment_gap (
  source   varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  first_id bigint NOT NULL,
  last_id  bigint NOT NULL,
  seen_at  bigint NOT NULL,
  PRIMARY KEY (source, first_id)
) ENGINE = InnoDB;

CREATE TABLE datp_transfer_timeout (
  source      varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  transfer_id varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  expiration  bigint NOT NULL,
  created_at  bigint NOT NULL,
  PRIMARY KEY (source, transfer_id)
) ENGINE = InnoDB;

CREATE INDEX datp_transfer_timeout_due ON datp_transfer_timeout (source, expiration);

-- Each transfer of another history that was found to be due, once.
CREATE TABLE datp_transfer_timed_out (
  source      varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  transfer_id varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  expiration  bigint NOT NULL,
  found_at    bigint NOT NULL,
  due_at      bigint,
  attempts    bigint NOT NULL,
  told_at     bigint,
  PRIMARY KEY (source, transfer_id)
) ENGINE = InnoDB;
