-- insert_audit: what operators did is in the log.
-- index: the primary key
-- rows: datp_audit
INSERT INTO datp_audit (at_ms, who, action, subject, was, became, reason)
SELECT at_ms, who, action, subject, was, became, reason FROM datp_audit_rows
