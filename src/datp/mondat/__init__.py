"""MONDAT, the monitor: what is happening, what is stuck, why, and what happens next; and what an operator can do."""
