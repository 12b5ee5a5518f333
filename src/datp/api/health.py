"""Whether this process is alive, and whether it can work: /healthz and /readyz, for whatever starts and restarts it."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from datp.errors import StoreError
from datp.hotstore.store import Store

ANSWER_TIMEOUT_S: Final = 2.0
"""A store that is silent for longer is none to take work from; and few probes wait for longer."""


class Watched(Protocol):
    """What is asked of a node."""

    node_id: str
    ready: asyncio.Event
    ended: asyncio.Event
    failure: BaseException | None
    store: Store


class Health:
    """What stands in the way of this process's work, in a sentence."""

    def __init__(self, nodes: Sequence[Watched]) -> None:
        self.stopping = False
        self._nodes = nodes

    async def trouble(self) -> str:
        """Why this process is not ready; '' when it is."""
        if self.stopping:
            return "this process is stopping"
        for node in self._nodes:
            if node.failure is not None:
                return f"node {node.node_id} can't go on: {node.failure}"
            if not node.ready.is_set() or node.ended.is_set():
                return f"node {node.node_id} {'has ended' if node.ended.is_set() else 'starts'}"
        return await self._trouble_of_store()

    async def _trouble_of_store(self) -> str:
        """Nodes of one process share a store, so one question is enough."""
        for node in self._nodes[:1]:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S), node.store.turn() as turn:
                    reply = turn.list_definitions(whole=False)
                _ = reply.value
            except TimeoutError:
                return f"the store has not answered within {ANSWER_TIMEOUT_S:g} s"
            except StoreError as error:
                return str(error)
        return ""


def health_app(health: Health) -> Starlette:
    """The two routes."""

    async def healthz(_: Request) -> Response:
        return JSONResponse({"alive": True})

    async def readyz(_: Request) -> Response:
        trouble = await health.trouble()
        if trouble:
            return JSONResponse({"ready": False, "reason": trouble}, 503)
        return JSONResponse({"ready": True})

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz)])


class HttpServer:
    """The routes are served on this socket, in the loop that runs, until `stop`."""

    def __init__(self, app: Starlette, listener: socket.socket) -> None:
        self._listener = listener
        self._server = _QuietServer(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The socket listens already, so whoever asks now is answered a little later."""
        self._task = asyncio.create_task(self._server.serve([self._listener]), name="http")

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait([self._task])
        self._listener.close()


class _QuietServer(uvicorn.Server):
    """Signals are for the process that it is a part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
