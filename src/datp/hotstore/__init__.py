"""Live state and queues, in Valkey or Redis: changed only by the scripts in `lua/`, called only by `store.py`."""
