-- lock_store: which store is archived here; it stays so until this transaction ends. SQLite has one writer anyway.
-- index: the only row
SELECT store_id, epoch, partitions FROM datp_store
