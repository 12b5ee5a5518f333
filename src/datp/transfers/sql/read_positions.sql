-- read_positions: a participant's positions.
-- index: the primary key
SELECT participant, currency, liquidity, net_debit_cap, position FROM datp_position
WHERE owner = :owner AND participant = :participant ORDER BY currency
