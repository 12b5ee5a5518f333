-- sum_reserved: what an owner's transfers make of each participant's position: reserved and paid, less what was received.
-- index: datp_transfer_owner, all of it
SELECT party, currency, sum(amount) FROM (
  SELECT payer AS party, currency, amount FROM datp_transfer
  WHERE owner = :owner AND state IN ('RESERVED', 'COMMITTED')
  UNION ALL
  SELECT payee, currency, -amount FROM datp_transfer WHERE owner = :owner AND state = 'COMMITTED'
) AS moved GROUP BY party, currency ORDER BY party, currency
