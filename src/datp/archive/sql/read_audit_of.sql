-- read_audit_of: the next of what was done to one thing, the last one first.
-- index: datp_audit_subject
SELECT id, at_ms, who, action, subject, was, became, reason
FROM datp_audit
WHERE subject = :subject AND id < :before
ORDER BY id DESC
LIMIT :count
