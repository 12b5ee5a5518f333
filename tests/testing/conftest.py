"""The plugin's fixtures, as its users have them."""

from datp.testing.plugin import datp, datp_server

__all__ = ["datp", "datp_server"]
