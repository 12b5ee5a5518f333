-- Transfers go, with their history.

DROP TABLE datp_transfer_timed_out;

DROP TABLE datp_transfer_timeout;

DROP TABLE datp_segment_gap;

DROP TABLE datp_segment;

DROP TABLE datp_transfer_event;

DROP TABLE datp_transfer_change;

DROP TABLE datp_transfer;

DROP TABLE datp_position;

DROP TABLE datp_participant;
