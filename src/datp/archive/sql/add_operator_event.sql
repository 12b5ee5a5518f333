-- add_operator_event: it has happened so often more; one that was acknowledged begins anew, and is to be told.
-- index: the primary key
INSERT INTO datp_operator_event
  (id, code, subject, text, first_at, last_at, times, acknowledged_at, acknowledged_by, tell_at, tell_tries, told_at)
VALUES (:id, :code, :subject, :text, :first_at, :last_at, :times, NULL, '', :last_at, 0, NULL)
ON CONFLICT (id) DO UPDATE SET
  text = CASE WHEN excluded.last_at >= datp_operator_event.last_at THEN excluded.text
    ELSE datp_operator_event.text END,
  first_at = CASE WHEN datp_operator_event.acknowledged_at IS NULL THEN datp_operator_event.first_at
    ELSE excluded.first_at END,
  times = CASE WHEN datp_operator_event.acknowledged_at IS NULL THEN datp_operator_event.times + excluded.times
    ELSE excluded.times END,
  tell_at = CASE
    WHEN datp_operator_event.tell_at IS NOT NULL THEN datp_operator_event.tell_at
    WHEN datp_operator_event.acknowledged_at IS NOT NULL OR datp_operator_event.told_at IS NULL
      OR datp_operator_event.told_at <= :told_before THEN excluded.tell_at
    ELSE NULL END,
  last_at = CASE WHEN excluded.last_at >= datp_operator_event.last_at THEN excluded.last_at
    ELSE datp_operator_event.last_at END,
  acknowledged_at = NULL,
  acknowledged_by = ''
