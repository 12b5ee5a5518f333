-- set_epoch: writes of an earlier life of the store are refused from now on.
-- index: the only row
UPDATE datp_store SET epoch = :epoch WHERE store_id = :store_id AND epoch < :epoch
