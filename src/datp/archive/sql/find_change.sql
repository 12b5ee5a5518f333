-- find_change: how often definitions of this kind have changed.
-- index: the primary key
SELECT changes FROM datp_change WHERE kind = :kind
