-- prepare_latest: where this connection keeps the transfers of a stretch.
-- index: none
CREATE TEMPORARY TABLE IF NOT EXISTS datp_latest (
  transfer_id varchar(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, state varchar(50) NOT NULL, id bigint NOT NULL
) ENGINE = MEMORY
