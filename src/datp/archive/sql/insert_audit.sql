-- insert_audit: what operators did is in the log.
-- index: the primary key
INSERT INTO datp_audit (at_ms, who, action, subject, was, became, reason)
VALUES (
  :at_ms, :who, :action, :subject, :was, :became, :reason
)
