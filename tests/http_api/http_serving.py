"""A real HTTP server in the test's process, and a client for it."""

import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from datp.api.http.app import Asgi
from datp.api.http.server import HttpServer


class Said(NamedTuple):
    """An answer."""

    status: int
    body: Any
    """The document, or the bytes of whatever else it is."""
    headers: Any
    raw: bytes

    @property
    def code(self) -> str:
        """Of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.body["status"] == self.status, self
        code: str = self.body["code"]
        return code


class Client:
    """Asks a server."""

    def __init__(self, url: str, session: aiohttp.ClientSession, headers: dict[str, str] | None = None) -> None:
        self.url = url
        self.session = session
        self.headers = headers or {}
        self.opened: list[aiohttp.ClientResponse] = []
        """Answers that are read piece by piece; closed with the server."""

    def as_(self, key: str) -> "Client":
        """The same, with this key."""
        same = Client(self.url, self.session, {"authorization": f"Bearer {key}"})
        same.opened = self.opened
        return same

    async def open(self, path: str, **headers: str) -> aiohttp.ClientResponse:
        """An answer of which only the head was read."""
        answer = await self.session.get(self.url + path, headers={**self.headers, **headers})
        self.opened.append(answer)
        return answer

    async def ask(self, method: str, path: str, **given: Any) -> Said:
        headers = {**self.headers, **given.pop("headers", {})}
        async with self.session.request(method, self.url + path, headers=headers, **given) as answer:
            raw = await answer.read()
            is_json = "json" in answer.headers.get("content-type", "") and raw
            return Said(answer.status, await answer.json(content_type=None) if is_json else raw, answer.headers, raw)

    async def get(self, path: str, **given: Any) -> Said:
        return await self.ask("GET", path, **given)

    async def post(self, path: str, document: Any = None, **given: Any) -> Said:
        return await self.ask("POST", path, **({"json": document} if "data" not in given else {}), **given)

    async def put(self, path: str, document: Any, **given: Any) -> Said:
        return await self.ask("PUT", path, json=document, **given)


@asynccontextmanager
async def served(app: Asgi, *, grace_ms: int = 1_000) -> AsyncIterator[Client]:
    """The application answers on a port of its own."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    server = HttpServer(app, listener, grace_ms=grace_ms)
    server.start()
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", session)
            yield client
            for answer in client.opened:
                answer.close()
    finally:
        await server.stop()


async def raw_request(client: Client, *pieces: bytes) -> bytes:
    """What the server says to these very bytes."""
    import asyncio

    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for piece in pieces:
            writer.write(piece)
        await writer.drain()
        async with asyncio.timeout(5):
            return await reader.read()
    finally:
        writer.close()


def header_lines(lines: Iterable[str]) -> bytes:
    """The head of a request."""
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
