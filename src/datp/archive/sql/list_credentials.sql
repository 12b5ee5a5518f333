-- list_credentials: every credential, sealed.
-- index: none; all of them are read, and there are few
SELECT owner, name, kind, key_id, sealed, created_at, updated_at
FROM datp_credential
ORDER BY owner, name
