-- raise_epoch: the next life of the store begins; writes of earlier ones are refused from now on.
-- index: the only row
UPDATE datp_store SET epoch = epoch + 1
