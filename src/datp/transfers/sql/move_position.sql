-- move_position: a position is less by the amount: it was released, or paid.
-- index: the primary key
UPDATE datp_position SET position = position - :amount
WHERE owner = :owner AND participant = :participant AND currency = :currency
