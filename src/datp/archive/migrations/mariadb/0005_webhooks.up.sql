-- Webhooks: what became of each delivery, those that the store has given up to SQL, and the keys that sign.

CREATE TABLE datp_webhook_delivery (
  id          varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  tx_id       varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  sequence    bigint NOT NULL,
  owner       varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  url         text CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  kind        varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  state       varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  tries       bigint NOT NULL,
  next_try_at bigint,
  claim       varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  forced      tinyint NOT NULL DEFAULT 0,
  status      bigint NOT NULL,
  says        mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  created_at  bigint NOT NULL,
  updated_at  bigint NOT NULL,
  body        longblob,
  attempts    mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL
) ENGINE = InnoDB;

-- What is to be tried next.
CREATE INDEX datp_webhook_delivery_due ON datp_webhook_delivery (state, next_try_at);

-- Lists, the newest first: an owner's, and everybody's. All states are as many ranges.
CREATE INDEX datp_webhook_delivery_owner ON datp_webhook_delivery (owner, state, created_at);
CREATE INDEX datp_webhook_delivery_state ON datp_webhook_delivery (state, created_at);

CREATE TABLE datp_webhook_key (
  id         varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  owner      varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  scheme     varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  secret     varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at bigint NOT NULL,
  retires_at bigint
) ENGINE = InnoDB;

CREATE INDEX datp_webhook_key_owner ON datp_webhook_key (owner, created_at);
