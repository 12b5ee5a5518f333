-- count_due: how many pending transfers expire by then, in each currency, and how much; at the most :count are looked at.
-- index: datp_transfer_due
SELECT currency, count(*), sum(amount) FROM (
  SELECT currency, amount FROM datp_transfer WHERE (:owner = '' OR owner = :owner)
    AND due <= :until
  ORDER BY due LIMIT :count
) AS due_by_then GROUP BY currency ORDER BY currency
