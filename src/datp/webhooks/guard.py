"""Where webhooks may lead: names are resolved in threads of their own, and only addresses that may be called are used.

A slow name server must hold up nobody but those who asked it: the event loop has a handful of threads for names, which
a few dead domains would fill.
"""

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from datp.outbound import AddressRefused, Network, check_address, connector

RESOLVERS: Final = 64
"""Threads, which mostly wait."""
KEPT_OPEN_S: Final = 60.0
"""A receiver that is told something every minute need not shake hands each time."""


class GuardedResolver(AbstractResolver):
    """Gives the addresses of a host that may be called; that they alone are connected to, the connector sees to."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks
        self._threads = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolve")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises AddressRefused when it has only others, OSError when it has none."""
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        )
        allowed: list[ResolveResult] = []
        refused: AddressRefused | None = None
        for kind, _, protocol, _, place in found:
            address = str(place[0])
            try:
                check_address(address, self._networks)
            except AddressRefused as error:
                refused = error
                continue
            allowed.append(
                {
                    "hostname": host,
                    "host": address,
                    "port": port,
                    "family": kind,
                    "proto": protocol,
                    "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                }
            )
        if not allowed:
            raise refused or OSError(f"{host} has no address")
        return allowed

    async def close(self) -> None:
        """Nobody waits for a name any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def guarded_connector(networks: Sequence[Network], known_for_ms: int) -> aiohttp.TCPConnector:
    """Connections to what may be called, kept open for a while. How many there are at once, the sender says."""
    options: dict[str, Any] = {"limit": 0, "keepalive_timeout": KEPT_OPEN_S, "dns_cache_max_size": 10_000}
    return connector(networks, resolver=GuardedResolver(networks), ttl_dns_cache=known_for_ms / 1000, **options)
