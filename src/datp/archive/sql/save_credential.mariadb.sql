-- save_credential: the credential is as it is given; when it was made first stays.
-- index: the primary key
INSERT INTO datp_credential (owner, name, kind, key_id, sealed, created_at, updated_at)
VALUES (:owner, :name, :kind, :key_id, :sealed, :created_at, :updated_at)
ON DUPLICATE KEY UPDATE
  kind = VALUES(kind), key_id = VALUES(key_id), sealed = VALUES(sealed), updated_at = VALUES(updated_at)
