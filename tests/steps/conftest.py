"""Labs for the step types: a held clock, the real scripts; and the databases that we claim."""

from on_databases import empty_url, kind, servers

from datp.testing.plugin import datp, datp_server

__all__ = ["datp", "datp_server", "empty_url", "kind", "servers"]
