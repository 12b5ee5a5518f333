"""What the steps of one node share: connections that are kept, and credentials that are looked up where they are used.

Everything is made when a step first asks for it, so that a node whose steps call nobody opens nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from datp.errors import NoCredentials
from datp.model.credential import Credential
from datp.settings import Settings

if TYPE_CHECKING:
    import aiohttp

CONNECTIONS_MAX: Final = 200
CONNECTIONS_PER_HOST_MAX: Final = 50
"""A slow receiver must not take every connection."""

T = TypeVar("T")


class CredentialSource(Protocol):
    """Where credentials are kept."""

    async def find(self, name: str, owner: str) -> Credential:
        """The owner's credential of this name, or the one that everybody shares; raises NotFound, DatabaseError."""


class Tools:
    """Shared by the steps of a node, from its start to its end."""

    def __init__(self, settings: Settings, credentials: CredentialSource | None = None) -> None:
        self.settings = settings
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._kept: dict[str, Any] = {}
        self._making: dict[str, asyncio.Lock] = {}

    @property
    def session(self) -> "aiohttp.ClientSession":
        """For HTTP: it connects only to what may be called, keeps no cookies, and knows no proxies."""
        if self._session is None:
            import aiohttp

            from datp.outbound import connector, parse_networks

            self._session = aiohttp.ClientSession(
                connector=connector(
                    parse_networks(self.settings.outbound_networks),
                    limit=CONNECTIONS_MAX,
                    limit_per_host=CONNECTIONS_PER_HOST_MAX,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
            )
        return self._session

    async def credential(self, name: str, owner: str) -> Credential:
        """What the credential holds: not to be stored, logged or returned. Raises NotFound, NoCredentials."""
        if self._credentials is None:
            raise NoCredentials(
                f"This node knows no credentials, so there is no {name}: it needs a database (database_url) and a key"
                " (credential_keys)"
            )
        return await self._credentials.find(name, owner)

    async def kept(self, key: str, make: Callable[[], Awaitable[T]]) -> T:
        """Something that steps share, made once; if it has `close`, that is awaited when the node ends."""
        async with self._making.setdefault(key, asyncio.Lock()):
            if key not in self._kept:
                self._kept[key] = await make()
            found: T = self._kept[key]
            return found

    async def close(self) -> None:
        """What was opened is closed."""
        kept, self._kept = self._kept, {}
        for one in kept.values():
            if hasattr(one, "close"):
                await one.close()
        if self._session is not None:
            await self._session.close()
            self._session = None
