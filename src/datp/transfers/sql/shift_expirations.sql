-- shift_expirations: an owner's pending deadlines are moved by so much.
-- index: datp_transfer_owner
UPDATE datp_transfer SET expiration = expiration + :by_ms
WHERE owner = :owner AND state IN ('RECEIVED_PREPARE', 'RESERVED') AND expiration IS NOT NULL
