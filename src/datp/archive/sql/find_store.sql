-- find_store: the store that is archived here.
-- index: the only row
SELECT store_id, epoch, partitions FROM datp_store
