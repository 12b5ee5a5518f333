"""One request, asked until it is answered: what is safe to ask again is asked again, with growing pauses.

Everything that the client asks is safe: reading; setting a switch, which has the same value then; cancelling; and
starting, because a start carries a key by which the API knows it again.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from datp import __version__
from datp.client.problems import error_of
from datp.errors import ApiUnreachable, BadRequest, DatpError

AGAIN: Final = frozenset({429, 502, 503, 504})
"""Statuses that say: not now."""
FIRST_PAUSE_S: Final = 0.1
PAUSE_S_MAX: Final = 5.0
RETRY_AFTER_S_MAX: Final = 60.0
"""However long the API asks to wait."""
SILENCE_S_MAX: Final = 60.0
"""Of a stream: the API says at least every quarter of a minute that it is there."""

_encode = msgspec.json.Encoder().encode


class Answer:
    """A status below 400, and what came with it."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Transport:
    """Connections to one API; opened at the first request, within the loop that asks."""

    def __init__(
        self, url: str, key: str | None, *, timeout_s: float, retry_for_s: float, connections_max: int
    ) -> None:
        """Raises BadRequest for a URL that is none."""
        try:
            self._base = URL(url.rstrip("/"))
        except ValueError:
            self._base = URL()
        if self._base.scheme not in ("http", "https") or not self._base.host:
            raise BadRequest(f"{url!r} is not the URL of an API, such as https://datp.example", field="url")
        self._headers = {"User-Agent": f"datp-python/{__version__}", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._timeout_s = timeout_s
        self._retry_for_s = retry_for_s
        self._connections_max = connections_max
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0,
    ) -> Answer:
        """The answer. Raises what was refused; ApiUnreachable when none has come for `retry_for_s`.

        `wait_s`: how long the API was asked to wait before it answers.
        """
        url = self._url(path, query)
        content = None if body is None else _encode(body)
        given = {**(headers or {}), **({"Content-Type": "application/json"} if content is not None else {})}
        timeout = aiohttp.ClientTimeout(total=self._timeout_s + wait_s)
        patience = Patience(self._retry_for_s)
        while True:
            try:
                async with self._opened().request(
                    method, url, data=content, headers=given, timeout=timeout, allow_redirects=False
                ) as response:
                    said = Answer(response.status, response.headers, await response.read())
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                await patience.wait(_unreachable(self._base, error))
                continue
            if said.status < 300:
                return said
            refused = error_of(said.status, said.body)
            if said.status not in AGAIN:
                raise refused
            await patience.wait(refused, said.headers.get("Retry-After", ""))

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that comes piece by piece. Raises what was refused, ApiUnreachable, also while it is read."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s, sock_read=SILENCE_S_MAX)
        try:
            async with self._opened().get(
                self._url(path, None), headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status >= 300:
                    raise error_of(response.status, await response.read())
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(self._base, error) from None

    def patience(self) -> "Patience":
        return Patience(self._retry_for_s)

    def _url(self, path: str, query: Mapping[str, Any] | None) -> URL:
        said = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        text = f"{self._base}{path}" + (f"?{urlencode(said)}" if said else "")
        return URL(text, encoded=True)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections_max),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class Patience:
    """How long something is tried again, and the pauses in between: they grow, and no two clients keep step."""

    def __init__(self, for_s: float) -> None:
        self._ends_at = asyncio.get_running_loop().time() + for_s
        self._tries = 0

    async def wait(self, error: DatpError, retry_after: str = "") -> None:
        """Pauses; raises the error when there is no time left."""
        pause_s = min(FIRST_PAUSE_S * 2**self._tries, PAUSE_S_MAX) * random.uniform(0.5, 1)
        if retry_after.isascii() and retry_after.isdigit():
            pause_s = max(pause_s, min(float(retry_after[:6]), RETRY_AFTER_S_MAX))
        self._tries += 1
        if asyncio.get_running_loop().time() + pause_s > self._ends_at:
            raise error
        await asyncio.sleep(pause_s)


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _unreachable(base: URL, error: Exception) -> ApiUnreachable:
    why = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
    return ApiUnreachable(f"{base} can't be reached: {why}")
