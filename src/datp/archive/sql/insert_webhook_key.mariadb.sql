-- insert_webhook_key: an owner signs with one more key; the same id again changes nothing.
-- index: the primary key
INSERT INTO datp_webhook_key (id, owner, scheme, secret, created_at, retires_at)
VALUES (:id, :owner, :scheme, :secret, :created_at, NULL)
ON DUPLICATE KEY UPDATE id = id
