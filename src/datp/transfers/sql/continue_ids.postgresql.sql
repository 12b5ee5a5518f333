-- continue_ids: numbers go on after the highest one that is there.
-- index: the primary key
SELECT setval(pg_get_serial_sequence('datp_transfer', 'id'), (SELECT max(id) FROM datp_transfer))
