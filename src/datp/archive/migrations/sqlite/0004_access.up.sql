-- Who may: API keys, of which only hashes are kept; what operators did; and what they are to be told.

CREATE TABLE datp_api_key (
  id          TEXT NOT NULL PRIMARY KEY,
  secret_hash TEXT NOT NULL,
  owner       TEXT NOT NULL,
  role        TEXT NOT NULL,
  name        TEXT NOT NULL,
  created_at  INTEGER NOT NULL,
  expires_at  INTEGER,
  revoked_at  INTEGER
) STRICT;

CREATE TABLE datp_audit (
  id      INTEGER PRIMARY KEY,
  at_ms   INTEGER NOT NULL,
  who     TEXT NOT NULL,
  action  TEXT NOT NULL,
  subject TEXT NOT NULL,
  was     TEXT NOT NULL,
  became  TEXT NOT NULL,
  reason  TEXT NOT NULL
) STRICT;

-- What was done to one thing, in the order in which it was done.
CREATE INDEX datp_audit_subject ON datp_audit (subject, id);

-- One row for a code and a subject: it counts how often it has happened.
CREATE TABLE datp_operator_event (
  id              TEXT NOT NULL PRIMARY KEY,
  code            TEXT NOT NULL,
  subject         TEXT NOT NULL,
  text            TEXT NOT NULL,
  first_at        INTEGER NOT NULL,
  last_at         INTEGER NOT NULL,
  times           INTEGER NOT NULL,
  acknowledged_at INTEGER,
  acknowledged_by TEXT NOT NULL,
  tell_at         INTEGER,
  tell_tries      INTEGER NOT NULL,
  told_at         INTEGER
) STRICT;

-- The list, the last one first; and what is to be posted to the operator's webhook.
CREATE INDEX datp_operator_event_last ON datp_operator_event (last_at, id);
CREATE INDEX datp_operator_event_tell ON datp_operator_event (tell_at);
