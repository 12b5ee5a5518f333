"""Nodes run in this process until it is told to stop: what `datp dev` and `datp node` have in common."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Final

from datp.api.access import Access
from datp.api.health import Health
from datp.api.http.all_routes import api_routes, with_description
from datp.api.http.api import Api
from datp.api.http.app import HttpApp, Receive, Scope, Send, send_answer
from datp.api.http.door import Door
from datp.api.http.health_routes import health_routes
from datp.api.http.load import Load
from datp.api.http.problem import refusal
from datp.api.http.server import BACKLOG, HttpServer
from datp.cli.output import note
from datp.clock import FollowingClock
from datp.errors import DatpError, StartRefused, TooBusy
from datp.mondat.app import Monitor, guarded
from datp.settings import Settings
from datp.worker.node import Node

INTERRUPTED: Final = 130
"""The exit code after a signal that was not waited for: 128 and SIGINT."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this port (0: any free one); raises StartRefused when somebody else has it."""
    listener = socket.socket()
    # A port that was ours a moment ago is free; without this, the kernel keeps it for a minute.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        why = error.strerror if isinstance(error, OSError) else "ports go to 65535"
        raise StartRefused(f"Port {port} of {host} can't be had ({why}): choose another with --port") from None
    return listener


def set_up_logging() -> None:
    """What happens is told on stderr, a line each."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")


class Told:
    """The first SIGINT or SIGTERM sets `to_stop`; the second doesn't wait for anything."""

    def __init__(self, at_once: Callable[[], None]) -> None:
        self.to_stop = asyncio.Event()
        self._at_once = at_once

    def listen(self) -> None:
        """From now on, signals are heard here."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._hear)

    def _hear(self) -> None:
        if not self.to_stop.is_set():
            self.to_stop.set()
            return
        self._at_once()
        sys.stdout.flush()
        os._exit(INTERRUPTED)


class Front:
    """What listens: at first it says only how the nodes are, and once the API is open it serves that too."""

    def __init__(self, health: Health, listener: socket.socket, settings: Settings, *, will_open: bool) -> None:
        """`will_open`: an API comes; who asks for it before that is told to come again, and not that it isn't there."""
        self._health = health
        self._will_open = will_open
        self._port = listener.getsockname()[1]
        self._settings = settings
        self._app = self._app_without_api()
        self._api: Api | None = None
        self._server = HttpServer(self, listener, grace_ms=settings.http_grace_ms)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def start(self) -> None:
        self._server.start()

    async def open(self, api: Api) -> None:
        """The API is served. Raises what keeps it from being."""
        self._api = api
        await api.open()
        routes = [*health_routes(self._health), *api_routes(api)]
        door = Door(api.access, loopback_port=self._port if api.is_without_keys else None)
        self._app = HttpApp(with_description(routes), door, api.load, {"mondat": guarded(Monitor(api).app, door)})

    async def stop(self) -> None:
        """What was asked has been answered; then nothing listens any more."""
        if self._api is not None:
            self._api.answer_waiters()
        await self._server.stop()
        if self._api is not None:
            await self._api.close()

    def _app_without_api(self) -> HttpApp:
        nobody = Access(None, self._settings, FollowingClock())
        mounts = {"v1": _not_yet} if self._will_open else {}
        return HttpApp(health_routes(self._health), Door(nobody), Load(self._settings), mounts)


async def _not_yet(scope: Scope, receive: Receive, send: Send) -> None:
    await send_answer(send, refusal(TooBusy("The API of this process has not started yet", retry_after_s=1)))


async def serve(
    nodes: Sequence[Node],
    told: Told,
    *,
    listener: socket.socket | None = None,
    api: Api | None = None,
    announce: Callable[[], None],
    trouble: Callable[[], DatpError | None] = lambda: None,
) -> None:
    """The nodes run until this process is told to stop, or can't go on; raises what stopped them.

    `announce` says so when they run; `trouble` is asked now and then for another reason to stop. What listens says how
    they are from the beginning, and serves the API, if there is one, once they run.
    """
    _allow_many_connections()
    health = Health(nodes)
    front = None
    if listener is not None:
        front = Front(health, listener, nodes[0].settings, will_open=api is not None)
    if front is not None:
        front.start()
    try:
        for node in nodes:
            await node.start()
        if front is not None and api is not None:
            await front.open(api)
        announce()
        reason = await _until_told(nodes, told, trouble)
        health.stopping = True
        if any(node.slots.busy for node in nodes) and reason is None:
            note("Stopping: what runs may finish first. Once more, and it stops at once")
    finally:
        await asyncio.gather(*(_stop(node) for node in nodes))
        if front is not None:
            await front.stop()
    for failure in (reason, *(node.failure for node in nodes)):
        if failure is not None:
            raise failure


def _allow_many_connections() -> None:
    """The process may have as many files open as the system lets it: each who waits, and each who is told, is one."""
    with contextlib.suppress(ValueError, OSError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _until_told(nodes: Sequence[Node], told: Told, trouble: Callable[[], DatpError | None]) -> DatpError | None:
    """Returns when it is time to stop, with the reason unless it is a signal or a node's own."""
    waits = [asyncio.ensure_future(event.wait()) for event in (told.to_stop, *(node.ended for node in nodes))]
    reason = None
    try:
        while reason is None:
            done, _ = await asyncio.wait(waits, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            if done:
                break
            reason = trouble()
    finally:
        for wait in waits:
            wait.cancel()
    return reason


async def _stop(node: Node) -> None:
    if node.failure is None:
        await node.stop()
    else:
        await node.ended.wait()
