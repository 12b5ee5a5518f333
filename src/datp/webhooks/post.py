"""One try: a request is posted, and its answer is judged. Whatever a receiver does, it ends in time."""

import asyncio
import email.utils
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import aiohttp
from yarl import URL

from datp import __version__
from datp.outbound import parse_networks, refusal
from datp.settings import Settings
from datp.webhooks.delivery import Outcome, Verdict, shown_answer
from datp.webhooks.guard import guarded_connector

ANSWER_BYTES_MAX: Final = 16 * 1024
"""Of an answer that is read, so that its connection can be used again; after a longer one it is closed."""
ANSWER_WITHIN_S: Final = 1.0
"""An answer's status decides; what follows it is worth no more than this."""
HEADERS: Final = {"Content-Type": "application/json", "User-Agent": f"DATP/{__version__} (webhooks)"}
LEFT_OUT: Final = ("Accept", "Accept-Encoding")
"""Headers that would ask for something: the answer is not what we are after, and a compressed one may be a bomb."""
WAITS: Final = (429, 502, 503, 504)
"""Statuses by which a receiver says that it has too much to do; when to come again, it may say too."""

_url = lru_cache(10_000)(lambda url: URL(url, encoded=True))


class Poster:
    """A session with many receivers; open within a running loop, and closed at the end."""

    def __init__(self, settings: Settings) -> None:
        self._session = aiohttp.ClientSession(
            connector=guarded_connector(parse_networks(settings.outbound_networks), settings.webhook_dns_ms),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=HEADERS,
            skip_auto_headers=LEFT_OUT,
            auto_decompress=False,
            # One time-out for all of it is ours.
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def close(self) -> None:
        await self._session.close()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int) -> Outcome:
        """Posts once; redirects are not followed, because who answers there is not who was named."""
        began = time.monotonic()
        status, answer, retry_after = 0, b"", ""
        why = ""
        try:
            async with (
                asyncio.timeout(timeout_ms / 1000),
                self._session.post(_url(url), data=body, headers=headers, allow_redirects=False) as response,
            ):
                status, retry_after = response.status, response.headers.get("Retry-After", "")
                answer = await _read_some(response)
        except TimeoutError:
            why = f"no answer within {timeout_ms / 1000:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = _told(error)
        latency_ms = round((time.monotonic() - began) * 1000)
        if not status:
            return Outcome(Verdict.FAILED, 0, latency_ms, why)
        return Outcome(_verdict(status), status, latency_ms, shown_answer(answer), _pause_ms(status, retry_after))


async def _read_some(response: aiohttp.ClientResponse) -> bytes:
    """The beginning of the answer; all of it, if it is short and comes soon."""
    answer = b""
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while not response.content.at_eof() and len(answer) <= ANSWER_BYTES_MAX:
                answer += await response.content.readany()
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        response.close()
    return answer


def _verdict(status: int) -> Verdict:
    if 200 <= status < 300:
        return Verdict.DELIVERED
    return Verdict.GONE if status == 410 else Verdict.FAILED


def _pause_ms(status: int, retry_after: str) -> int:
    """The pause that a busy receiver asks for: seconds, or a date. 0 for none."""
    if status not in WAITS or not retry_after:
        return 0
    if retry_after.isascii() and retry_after.isdigit():
        return int(retry_after[:9]) * 1000
    try:
        at = email.utils.parsedate_to_datetime(retry_after).timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0
    return max(0, round((at - time.time()) * 1000))


def _told(error: Exception) -> str:
    """Why there was no answer, in a sentence."""
    refused = refusal(error)
    if refused is not None:
        return str(refused)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {error.host} can't be resolved"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection to {error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the receiver closed the connection without an answer"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
