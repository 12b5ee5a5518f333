-- wrong_positions: positions that are not what transfers make them: reserved and paid, less what was received.
-- index: none; every transfer is read once
SELECT p.owner, p.participant, p.currency, p.position, coalesce(m.amount, 0)
FROM datp_position AS p LEFT JOIN (
  SELECT owner, party, currency, sum(amount) AS amount FROM (
    SELECT owner, payer AS party, currency, amount FROM datp_transfer WHERE state IN ('RESERVED', 'COMMITTED')
    UNION ALL
    SELECT owner, payee, currency, -amount FROM datp_transfer WHERE state = 'COMMITTED'
  ) AS moved GROUP BY owner, party, currency
) AS m ON m.owner = p.owner AND m.party = p.participant AND m.currency = p.currency
WHERE p.position <> coalesce(m.amount, 0)
ORDER BY p.owner, p.participant, p.currency
