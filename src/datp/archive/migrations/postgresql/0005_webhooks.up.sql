-- Webhooks: what became of each delivery, those that the store has given up to SQL, and the keys that sign.

CREATE TABLE datp_webhook_delivery (
  id          text COLLATE "C" NOT NULL PRIMARY KEY,
  tx_id       text COLLATE "C" NOT NULL,
  sequence    bigint NOT NULL,
  owner       text COLLATE "C" NOT NULL,
  url         text COLLATE "C" NOT NULL,
  kind        text COLLATE "C" NOT NULL,
  state       text COLLATE "C" NOT NULL,
  tries       bigint NOT NULL,
  next_try_at bigint,
  claim       text COLLATE "C" NOT NULL DEFAULT '',
  forced      smallint NOT NULL DEFAULT 0,
  status      bigint NOT NULL,
  says        text NOT NULL,
  created_at  bigint NOT NULL,
  updated_at  bigint NOT NULL,
  body        bytea,
  attempts    text NOT NULL
);

-- What is to be tried next.
CREATE INDEX datp_webhook_delivery_due ON datp_webhook_delivery (next_try_at) WHERE state = 'waiting';

-- Lists, the newest first: an owner's, and everybody's. All states are as many ranges.
CREATE INDEX datp_webhook_delivery_owner ON datp_webhook_delivery (owner, state, created_at);
CREATE INDEX datp_webhook_delivery_state ON datp_webhook_delivery (state, created_at);

CREATE TABLE datp_webhook_key (
  id         text COLLATE "C" NOT NULL PRIMARY KEY,
  owner      text COLLATE "C" NOT NULL,
  scheme     text COLLATE "C" NOT NULL,
  secret     text NOT NULL,
  created_at bigint NOT NULL,
  retires_at bigint
);

CREATE INDEX datp_webhook_key_owner ON datp_webhook_key (owner, created_at);
