-- read_history: what happened to a transfer, in order.
-- index: the primary key
SELECT version, state, reason, at FROM datp_transfer_change WHERE transfer = :transfer ORDER BY version
