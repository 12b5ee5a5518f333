-- settle_latest: of a stretch, the transfers that are pending no more wait for their deadline no more.
-- index: the primary key
DELETE FROM datp_transfer_timeout WHERE source = :source AND transfer_id IN (
  SELECT transfer_id FROM datp_latest WHERE state NOT IN ('RECEIVED_PREPARE', 'RESERVED'))
