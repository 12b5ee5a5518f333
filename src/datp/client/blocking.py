"""The client, for code that isn't asynchronous: the asynchronous one, driven by an event loop in a thread of its own.

There is one implementation: a method here is the method there, with its types, waited for.
"""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from datp.client.asynchronous import AsyncClient

P = ParamSpec("P")
T = TypeVar("T")


def _waited(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Client", P], T]:
    """The method, waited for."""

    def wait(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._client, *args, **kwargs))

    functools.update_wrapper(wait, method)
    return wait


def _iterated(
    method: Callable[Concatenate[AsyncClient, P], AsyncIterator[T]],
) -> Callable[Concatenate["Client", P], Iterator[T]]:
    """The method, whose results are waited for one by one."""

    def iterate(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        iterator = method(self._client, *args, **kwargs)
        try:
            while True:
                try:
                    yield self._loop.run(_next(iterator))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run(_close(iterator))

    functools.update_wrapper(iterate, method)
    return iterate


class Client:
    """See AsyncClient: the same, but what it does has been done when a method returns. Threads may share one."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 30,
        retry_for_s: float = 60,
        connections_max: int = 100,
    ) -> None:
        """As AsyncClient."""
        self._client = AsyncClient(
            url, key=key, timeout_s=timeout_s, retry_for_s=retry_for_s, connections_max=connections_max
        )
        self._loop = _LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Its connections are closed, and its thread has ended."""
        if not self._loop.is_closed:
            self._loop.run(self._client.close())
            self._loop.close()

    start = _waited(AsyncClient.start)
    start_batch = _waited(AsyncClient.start_batch)
    get = _waited(AsyncClient.get)
    get_by_external_id = _waited(AsyncClient.get_by_external_id)
    wait = _waited(AsyncClient.wait)
    flow = _waited(AsyncClient.flow)
    events = _iterated(AsyncClient.events)
    switches = _waited(AsyncClient.switches)
    transaction_types = _waited(AsyncClient.transaction_types)
    list = _iterated(AsyncClient.list)
    set_switch = _waited(AsyncClient.set_switch)
    cancel = _waited(AsyncClient.cancel)


class _LoopThread:
    """A thread with an event loop, which runs what other threads ask for. Begun at the first call."""

    def __init__(self) -> None:
        self.is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._beginning = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What it comes to; a caller who is interrupted takes it back."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._begun())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        self.is_closed = True
        with self._beginning:
            if self._loop is not None and self._thread is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()

    def _begun(self) -> asyncio.AbstractEventLoop:
        with self._beginning:
            assert not self.is_closed, "the client has been closed"
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # A daemon: a client that nobody closed must not keep the process from ending.
                self._thread = threading.Thread(target=self._loop.run_forever, name="datp-client", daemon=True)
                self._thread.start()
            return self._loop


async def _next(iterator: AsyncIterator[T]) -> T:
    return await anext(iterator)


async def _close(iterator: Any) -> None:
    await iterator.aclose()
