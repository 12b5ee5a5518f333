-- add_changes: the history of generated transfers is there.
-- index: the primary key
INSERT INTO datp_transfer_change (transfer, version, state, reason, at)
VALUES (
  :transfer, :version, :state, :reason, :at
)
