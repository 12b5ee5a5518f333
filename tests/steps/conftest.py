"""Labs for the step types: a held clock, the real scripts."""

from datp.testing.plugin import datp, datp_server

__all__ = ["datp", "datp_server"]
