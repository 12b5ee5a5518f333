-- empty_latest: nothing is left of the last stretch.
-- index: none
DELETE FROM datp_latest
