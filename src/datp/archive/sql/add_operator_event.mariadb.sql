-- add_operator_event: it has happened so often more; one that was acknowledged begins anew, and is to be told.
-- index: the primary key
INSERT INTO datp_operator_event
  (id, code, subject, text, first_at, last_at, times, acknowledged_at, acknowledged_by, tell_at, tell_tries, told_at)
VALUES (:id, :code, :subject, :text, :first_at, :last_at, :times, NULL, '', :last_at, 0, NULL)
ON DUPLICATE KEY UPDATE
  -- MariaDB does these one after the other, and each sees what those before it did.
  text = CASE WHEN VALUES(last_at) >= last_at THEN VALUES(text) ELSE text END,
  first_at = CASE WHEN acknowledged_at IS NULL THEN first_at ELSE VALUES(first_at) END,
  times = CASE WHEN acknowledged_at IS NULL THEN times + VALUES(times) ELSE VALUES(times) END,
  tell_at = CASE
    WHEN tell_at IS NOT NULL THEN tell_at
    WHEN acknowledged_at IS NOT NULL OR told_at IS NULL OR told_at <= :told_before THEN VALUES(tell_at)
    ELSE NULL END,
  last_at = CASE WHEN VALUES(last_at) >= last_at THEN VALUES(last_at) ELSE last_at END,
  acknowledged_at = NULL,
  acknowledged_by = ''
