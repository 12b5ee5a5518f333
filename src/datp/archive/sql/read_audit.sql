-- read_audit: the next of what operators did, the last one first.
-- index: the primary key
SELECT id, at_ms, who, action, subject, was, became, reason
FROM datp_audit
WHERE id < :before
ORDER BY id DESC
LIMIT :count
