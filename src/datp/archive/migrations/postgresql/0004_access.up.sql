-- Who may: API keys, of which only hashes are kept; what operators did; and what they are to be told.

CREATE TABLE datp_api_key (
  id          text COLLATE "C" NOT NULL PRIMARY KEY,
  secret_hash text COLLATE "C" NOT NULL,
  owner       text COLLATE "C" NOT NULL,
  role        text COLLATE "C" NOT NULL,
  name        text COLLATE "C" NOT NULL,
  created_at  bigint NOT NULL,
  expires_at  bigint,
  revoked_at  bigint
);

CREATE TABLE datp_audit (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at_ms   bigint NOT NULL,
  who     text COLLATE "C" NOT NULL,
  action  text COLLATE "C" NOT NULL,
  subject text COLLATE "C" NOT NULL,
  was     text NOT NULL,
  became  text NOT NULL,
  reason  text NOT NULL
);

-- What was done to one thing, in the order in which it was done.
CREATE INDEX datp_audit_subject ON datp_audit (subject, id);

-- One row for a code and a subject: it counts how often it has happened.
CREATE TABLE datp_operator_event (
  id              text COLLATE "C" NOT NULL PRIMARY KEY,
  code            text COLLATE "C" NOT NULL,
  subject         text COLLATE "C" NOT NULL,
  text            text NOT NULL,
  first_at        bigint NOT NULL,
  last_at         bigint NOT NULL,
  times           bigint NOT NULL,
  acknowledged_at bigint,
  acknowledged_by text COLLATE "C" NOT NULL,
  tell_at         bigint,
  tell_tries      bigint NOT NULL,
  told_at         bigint
);

-- The list, the last one first; and what is to be posted to the operator's webhook.
CREATE INDEX datp_operator_event_last ON datp_operator_event (last_at, id);
CREATE INDEX datp_operator_event_tell ON datp_operator_event (tell_at);
