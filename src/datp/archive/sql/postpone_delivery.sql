-- postpone_delivery: it was not tried, and comes later.
-- index: the primary key
UPDATE datp_webhook_delivery SET claim = '', next_try_at = :next_try_at WHERE id = :id AND claim = :claim
