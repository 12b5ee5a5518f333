"""The client is waiting: who waits for which transaction, and how they hear that it changed."""
