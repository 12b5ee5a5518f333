-- Who may: API keys, of which only hashes are kept; what operators did; and what they are to be told.

CREATE TABLE datp_api_key (
  id          varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  secret_hash varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  owner       varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  role        varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name        varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  created_at  bigint NOT NULL,
  expires_at  bigint,
  revoked_at  bigint
) ENGINE = InnoDB;

CREATE TABLE datp_audit (
  id      bigint AUTO_INCREMENT PRIMARY KEY,
  at_ms   bigint NOT NULL,
  who     varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  action  varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subject varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  was     mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  became  mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  reason  mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL
) ENGINE = InnoDB;

-- What was done to one thing, in the order in which it was done.
CREATE INDEX datp_audit_subject ON datp_audit (subject, id);

-- One row for a code and a subject: it counts how often it has happened.
CREATE TABLE datp_operator_event (
  id              varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  code            varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subject         varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  text            mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  first_at        bigint NOT NULL,
  last_at         bigint NOT NULL,
  times           bigint NOT NULL,
  acknowledged_at bigint,
  acknowledged_by varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  tell_at         bigint,
  tell_tries      bigint NOT NULL,
  told_at         bigint
) ENGINE = InnoDB;

-- The list, the last one first; and what is to be posted to the operator's webhook.
CREATE INDEX datp_operator_event_last ON datp_operator_event (last_at, id);
CREATE INDEX datp_operator_event_tell ON datp_operator_event (tell_at);
