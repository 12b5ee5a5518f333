"""Somebody else's API, as the tests have it: it remembers what it was asked, and answers as it is told."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from aiohttp import web


class Asked(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: str


class BackEnd:
    """A server on loopback, in a thread of its own."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: list[web.Response] = []
        """What the next requests are answered; then as the path says."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._hanging: asyncio.Event | None = None
        self.url = ""

    def says(self, status: int = 200, body: Any = None, **headers: str) -> None:
        """The next request is answered so."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        text = body if isinstance(body, str) else json.dumps(body)
        kind = "text/plain" if isinstance(body, str) else "application/json"
        self.answers.append(web.Response(status=status, text=text, content_type=kind, headers=named))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.text()
        self.asked.append(Asked(request.method, request.raw_path, dict(request.query), dict(request.headers), raw))
        if request.path == "/hangs":
            assert self._hanging is not None
            await self._hanging.wait()
        if request.path == "/drops":
            assert request.transport is not None
            request.transport.abort()
        if request.path == "/large":
            return web.Response(body=b"x" * int(request.query["bytes"]))
        if request.path == "/repeats":
            seen = {"X-Seen": request.headers.get("Authorization", "")}
            return web.json_response({"headers": dict(request.headers), "url": str(request.url)}, headers=seen)
        if request.path == "/elsewhere":
            return web.Response(status=302, headers={"Location": f"{self.url}/items/pen"})
        if self.answers:
            return self.answers.pop(0)
        if request.path.startswith("/items/"):
            sku = request.match_info["rest"].removeprefix("items/")
            if sku == "nothing":
                return web.Response(status=404, text="no such item")
            return web.json_response({"sku": sku, "price": "1.20"})
        if request.path == "/orders":
            return web.json_response({"state": "full"})
        return web.Response(status=404, text="nothing here")

    async def _start(self) -> None:
        self._hanging = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        assert self._hanging is not None
        self._hanging.set()
        await self._runner.cleanup()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    @contextmanager
    def running(self) -> "Iterator[BackEnd]":
        self._thread.start()
        self._do(self._start())
        try:
            yield self
        finally:
            self._do(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()
