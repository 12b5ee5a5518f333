-- Credentials that steps show: each sealed with a key that isn't here, and bound to its owner and name.

CREATE TABLE datp_credential (
  owner      varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name       varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  kind       varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  key_id     varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  sealed     mediumblob NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (owner, name)
) ENGINE = InnoDB;
