-- insert_store: this store is archived here, unless one is already.
-- index: the primary key
INSERT INTO datp_store (one, store_id, epoch, partitions) VALUES (1, :store_id, :epoch, :partitions)
ON DUPLICATE KEY UPDATE one = 1
