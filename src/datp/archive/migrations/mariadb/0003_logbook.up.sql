-- The logbook of steps, and how many transactions there were on each day, which stays when they are deleted.

CREATE TABLE datp_log (
  id      bigint AUTO_INCREMENT PRIMARY KEY,
  tx_id   varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  step_id varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at_ms   bigint NOT NULL,
  level   tinyint NOT NULL,
  source  mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  text    mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL
) ENGINE = InnoDB;

-- A transaction's entries, in the order in which they were written.
CREATE INDEX datp_log_transaction ON datp_log (tx_id, id);

CREATE TABLE datp_rollup (
  day          char(10) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  owner        varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  type         varchar(260) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status       varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  transactions bigint NOT NULL,
  PRIMARY KEY (day, owner, type, status)
) ENGINE = InnoDB;
