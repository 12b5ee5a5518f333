-- save_position: a participant may owe so much in a currency; what it owes stays.
-- index: the primary key
INSERT INTO datp_position (owner, participant, currency, liquidity, net_debit_cap, position)
VALUES (:owner, :participant, :currency, :liquidity, :net_debit_cap, 0)
ON DUPLICATE KEY UPDATE liquidity = VALUES(liquidity), net_debit_cap = VALUES(net_debit_cap)
