"""Receivers of webhooks on real sockets, as good or as bad as a test wants them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from worker.support import soon

Answer = bytes | Callable[["Request", asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def status(code: int, *headers: str, body: bytes = b"") -> bytes:
    """An answer with this status."""
    lines = [f"HTTP/1.1 {code} -", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Request(msgspec.Struct):
    """What arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def said(self) -> tuple[str, Any]:
        """The kind, and the report or the status."""
        data = self.json["data"]
        kind = self.json["type"].removeprefix("transaction.")
        return kind, data["status"] if kind != "progress" else data["progressReport"]


class Receiver:
    """Answers each request with the next of its answers, and then with the last one again."""

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[Request] = []
        self.answers = list(answers) or [OK]
        self.connections = 0
        self.open_now = 0
        self.open_most = 0
        """How many requests were being answered at once, at the most."""
        self._server: asyncio.Server | None = None
        self._moved = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        for task in list(self._tasks):
            task.cancel()

    async def heard(self, times: int = 1, within_s: float = 15.0) -> list[Request]:
        """The requests, once there were so many."""
        async with self._moved:
            await soon(self._moved.wait_for(lambda: len(self.requests) >= times), f"{times} requests arrived", within_s)
        return self.requests

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                request = await _read(reader)
                self.open_now += 1
                self.open_most = max(self.open_most, self.open_now)
                try:
                    answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                    async with self._moved:
                        self.requests.append(request)
                        self._moved.notify_all()
                    if callable(answer):
                        await answer(request, writer)
                    else:
                        writer.write(answer)
                        await writer.drain()
                finally:
                    self.open_now -= 1
        self._writers.discard(writer)
        self._tasks.discard(task)
        writer.close()


@contextlib.asynccontextmanager
async def receiver(*answers: Answer) -> AsyncIterator[Receiver]:
    made = Receiver(*answers)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def never(request: Request, writer: asyncio.StreamWriter) -> None:
    """No answer at all."""
    await asyncio.Event().wait()


async def closes(request: Request, writer: asyncio.StreamWriter) -> None:
    """The connection is closed without an answer."""
    writer.close()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(head[0].split()[1], headers, body)
