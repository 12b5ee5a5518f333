"""Two-phase transfers with deadlines: prepared, reserved, then fulfilled, aborted or expired, each exactly once."""
