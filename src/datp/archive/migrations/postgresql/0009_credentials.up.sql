-- Credentials that steps show: each sealed with a key that isn't here, and bound to its owner and name.

CREATE TABLE datp_credential (
  owner      text COLLATE "C" NOT NULL,
  name       text COLLATE "C" NOT NULL,
  kind       text COLLATE "C" NOT NULL,
  key_id     text COLLATE "C" NOT NULL,
  sealed     bytea NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (owner, name)
);
