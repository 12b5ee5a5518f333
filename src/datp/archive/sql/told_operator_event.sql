-- told_operator_event: the operator's webhook has it.
-- index: the primary key
UPDATE datp_operator_event SET tell_at = NULL, tell_tries = 0, told_at = :told_at
WHERE id = :id AND tell_at = :until
