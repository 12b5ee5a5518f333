-- expire_transfers: these are expired; each is pending and past its deadline, or is left alone.
-- index: the primary key
UPDATE datp_transfer SET
  error_code = '3303', error_text = 'Transfer expired', version = version + 1, changed_at = :now,
  state = CASE state WHEN 'RESERVED' THEN 'EXPIRED_RESERVED' ELSE 'EXPIRED_PREPARED' END
WHERE id IN (:ids) AND state IN ('RECEIVED_PREPARE', 'RESERVED') AND expiration <= :now
