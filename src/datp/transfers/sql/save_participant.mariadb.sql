-- save_participant: a participant is known, with this webhook.
-- index: the primary key
INSERT INTO datp_participant (owner, name, webhook, created_at) VALUES (:owner, :name, :webhook, :now)
ON DUPLICATE KEY UPDATE webhook = VALUES(webhook)
