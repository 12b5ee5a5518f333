"""Who comes in: by a key; and in development without one, but only from this very machine."""

from collections.abc import Mapping
from typing import Final, Protocol

from datp.api.access import Caller
from datp.errors import Forbidden

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class Authenticating(Protocol):
    """What is asked who somebody is."""

    async def authenticate(self, authorization: str | None) -> Caller: ...


class Door:
    """Every request comes through here."""

    def __init__(self, access: Authenticating, *, loopback_port: int | None = None) -> None:
        """`loopback_port`: nobody needs a key, so a page of another site must not get in through the browser."""
        self._access = access
        self._hosts: frozenset[bytes] | None = None
        if loopback_port is not None:
            named = [f"{host}:{loopback_port}" for host in LOOPBACK]
            self._hosts = frozenset(name.encode() for name in named)

    def check_host(self, headers: Mapping[bytes, bytes]) -> None:
        """The request was meant for us, and was sent by nobody else's page. Raises Forbidden.

        A page whose own name was made to mean 127.0.0.1 (rebinding) still sends that name as Host; a page that sends
        to us from another site says so in Origin.
        """
        if self._hosts is None:
            return
        host = headers.get(b"host", b"").lower()
        if host not in self._hosts:
            raise Forbidden(
                "Without keys, only requests to 127.0.0.1, localhost or [::1] are answered; the Host header says"
                f" {host[:100].decode(errors='replace')!r}"
            )
        origin = headers.get(b"origin")
        if origin is not None and origin.lower().removeprefix(b"http://") not in self._hosts:
            raise Forbidden(
                f"A page of {origin[:100].decode(errors='replace')!r} may not ask here: without keys, only pages of"
                " this very address may"
            )

    async def caller(self, headers: Mapping[bytes, bytes]) -> Caller:
        """Who asks. Raises Unauthenticated, DatabaseError."""
        said = headers.get(b"authorization")
        return await self._access.authenticate(None if said is None else said.decode("latin-1"))
