-- has_schema: whether DATP has been here.
-- index: none
SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'datp_schema'
