-- insert_change: a row of the history.
-- index: the primary key
INSERT INTO datp_transfer_change (transfer, version, state, reason, at)
VALUES (:transfer, :version, :state, :reason, :at)
