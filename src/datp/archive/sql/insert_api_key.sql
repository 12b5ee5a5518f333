-- insert_api_key: a key is known, by a hash of its secret.
-- index: the primary key
INSERT INTO datp_api_key (id, secret_hash, owner, role, name, created_at, expires_at)
VALUES (:id, :secret_hash, :owner, :role, :name, :created_at, :expires_at)
