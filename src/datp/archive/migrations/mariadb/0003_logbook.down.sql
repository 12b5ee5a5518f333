-- The logbook and the counts are gone.

DROP TABLE datp_rollup;

DROP TABLE datp_log;
