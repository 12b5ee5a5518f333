-- claim_deliveries: these are tried by whoever names the claim, and are due again when it ends.
-- index: the primary key
UPDATE datp_webhook_delivery SET claim = :claim, next_try_at = :until WHERE id IN (:ids)
