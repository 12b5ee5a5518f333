"""The client is told: deliveries that are owed are claimed, sent, and sent again until they are taken."""
