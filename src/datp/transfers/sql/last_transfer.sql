-- last_transfer: the highest number of a transfer.
-- index: the primary key
SELECT coalesce(max(id), 0) FROM datp_transfer
