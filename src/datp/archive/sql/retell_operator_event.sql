-- retell_operator_event: the operator's webhook did not take it, and is asked again then.
-- index: the primary key
UPDATE datp_operator_event SET tell_at = :tell_at
WHERE id = :id AND tell_at = :until
