-- claim_operator_event: whoever found it due posts it, unless somebody else was faster.
-- index: the primary key
UPDATE datp_operator_event SET tell_at = :until, tell_tries = tell_tries + 1
WHERE id = :id AND tell_at = :tell_at
