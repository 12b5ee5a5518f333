-- end_transfer: what is pending is rejected or aborted, if its deadline has not come: else it expires.
-- index: the primary key
UPDATE datp_transfer SET
  state = :state, version = version + 1, error_code = :error_code, error_text = :error_text, changed_at = :now
WHERE id = :id AND state IN ('RECEIVED_PREPARE', 'RESERVED') AND (expiration IS NULL OR expiration > :now)
