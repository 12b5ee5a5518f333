-- Keys, the audit log and operator events are gone.

DROP TABLE datp_operator_event;

DROP TABLE datp_audit;

DROP TABLE datp_api_key;
