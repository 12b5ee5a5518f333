-- take_position: the payer's position holds the amount, if there is enough.
-- index: the primary key
UPDATE datp_position SET position = position + :amount
WHERE owner = :owner AND participant = :participant AND currency = :currency
  AND position + :amount <= liquidity AND (net_debit_cap IS NULL OR position + :amount <= net_debit_cap)
