-- prepare_latest: where this connection keeps the transfers of a stretch.
-- index: none
CREATE TEMPORARY TABLE IF NOT EXISTS datp_latest (transfer_id TEXT PRIMARY KEY, state TEXT NOT NULL, id INTEGER NOT NULL)
