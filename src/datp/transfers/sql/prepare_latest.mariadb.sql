-- prepare_latest: where this connection keeps the transfers of a stretch; nothing is in it.
-- index: none
CREATE OR REPLACE TEMPORARY TABLE datp_latest (
  transfer_id varchar(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, state varchar(50) NOT NULL, id bigint NOT NULL
) ENGINE = MEMORY
