-- save_credential: the credential is as it is given; when it was made first stays.
-- index: the primary key
INSERT INTO datp_credential (owner, name, kind, key_id, sealed, created_at, updated_at)
VALUES (:owner, :name, :kind, :key_id, :sealed, :created_at, :updated_at)
ON CONFLICT (owner, name) DO UPDATE SET
  kind = excluded.kind, key_id = excluded.key_id, sealed = excluded.sealed, updated_at = excluded.updated_at
