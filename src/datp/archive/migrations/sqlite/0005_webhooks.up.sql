-- Webhooks: what became of each delivery, those that the store has given up to SQL, and the keys that sign.

CREATE TABLE datp_webhook_delivery (
  id          TEXT NOT NULL PRIMARY KEY,
  tx_id       TEXT NOT NULL,
  sequence    INTEGER NOT NULL,
  owner       TEXT NOT NULL,
  url         TEXT NOT NULL,
  kind        TEXT NOT NULL,
  state       TEXT NOT NULL,
  tries       INTEGER NOT NULL,
  next_try_at INTEGER,
  claim       TEXT NOT NULL DEFAULT '',
  forced      INTEGER NOT NULL DEFAULT 0,
  status      INTEGER NOT NULL,
  says        TEXT NOT NULL,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  body        BLOB,
  attempts    TEXT NOT NULL
) STRICT;

-- What is to be tried next.
CREATE INDEX datp_webhook_delivery_due ON datp_webhook_delivery (next_try_at) WHERE state = 'waiting';

-- Lists, the newest first: an owner's, and everybody's. All states are as many ranges.
CREATE INDEX datp_webhook_delivery_owner ON datp_webhook_delivery (owner, state, created_at);
CREATE INDEX datp_webhook_delivery_state ON datp_webhook_delivery (state, created_at);

CREATE TABLE datp_webhook_key (
  id         TEXT NOT NULL PRIMARY KEY,
  owner      TEXT NOT NULL,
  scheme     TEXT NOT NULL,
  secret     TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  retires_at INTEGER
) STRICT;

CREATE INDEX datp_webhook_key_owner ON datp_webhook_key (owner, created_at);
