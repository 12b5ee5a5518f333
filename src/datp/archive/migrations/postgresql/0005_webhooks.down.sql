-- Deliveries that SQL held, what became of the others, and the keys that signed are gone.

DROP TABLE datp_webhook_key;

DROP TABLE datp_webhook_delivery;
