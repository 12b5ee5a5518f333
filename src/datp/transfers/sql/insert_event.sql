-- insert_event: something that is to be told, once.
-- index: the unique (transfer, version, kind)
INSERT INTO datp_transfer_event (transfer, version, kind, at, deadline, due_at, attempts, note)
VALUES (:transfer, :version, :kind, :at, :deadline, :at, 0, :note)
ON CONFLICT (transfer, version, kind) DO NOTHING
