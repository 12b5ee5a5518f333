-- expire_transfers: these are expired, with their history, and everybody is to be told; each is pending and past its
-- deadline, or is left alone. One statement: each row is looked up once.
-- index: the primary key
WITH expired AS (
  UPDATE datp_transfer SET
    error_code = '3303', error_text = 'Transfer expired', version = version + 1, changed_at = :now,
    state = CASE state WHEN 'RESERVED' THEN 'EXPIRED_RESERVED' ELSE 'EXPIRED_PREPARED' END
  WHERE id IN (:ids) AND state IN ('RECEIVED_PREPARE', 'RESERVED') AND expiration <= :now
  RETURNING id, version, state, expiration
), recorded AS (
  INSERT INTO datp_transfer_change (transfer, version, state, reason, at)
  SELECT id, version, state, 'Transfer expired', :now FROM expired
)
INSERT INTO datp_transfer_event (transfer, version, kind, at, deadline, due_at, attempts, note)
SELECT id, version, 'expired', :now, expiration, :now, 0, '' FROM expired
