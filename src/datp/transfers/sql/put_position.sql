-- put_position: a generated participant's position is what its transfers make it.
-- index: the primary key
UPDATE datp_position SET position = :position
WHERE owner = :owner AND participant = :participant AND currency = :currency
