"""The server: a socket, an application, and an end that answers what it can."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, cast

import uvicorn

from datp.api.http.app import Asgi

BACKLOG = 2_048
"""Connections that may wait to be taken; the kernel's own limit may be lower."""


class HttpServer:
    """The application is served on this socket, in the loop that runs, until `stop`."""

    def __init__(self, app: Asgi, listener: socket.socket, *, grace_ms: int) -> None:
        self._listener = listener
        self._server = _QuietServer(
            uvicorn.Config(
                cast(Any, app),
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                backlog=BACKLOG,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=max(1, grace_ms // 1000),
            )
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The socket listens already, so whoever asks now is answered a little later."""
        self._task = asyncio.create_task(self._server.serve([self._listener]), name="http")

    async def stop(self) -> None:
        """Nobody is let in any more; what was asked before is answered within the grace."""
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait([self._task])
        self._listener.close()


class _QuietServer(uvicorn.Server):
    """Signals are for the process that it is a part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
