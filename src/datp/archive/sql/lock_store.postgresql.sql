-- lock_store: which store is archived here; it stays so until this transaction ends.
-- index: the only row
SELECT store_id, epoch, partitions FROM datp_store FOR SHARE
