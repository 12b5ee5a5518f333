"""Calls of one moment travel together: who asks for one thing shares a batch with everybody who asks just now."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

UNDER_WAY_MAX: Final = 1
"""Batches at once. With one, what comes while the store works is the next batch; with two they were half as large, and
a start cost a tenth more."""


class Gathered(Generic[T, R]):
    """One call for many callers. Alone, a call goes out at once; under load the batches grow by themselves."""

    def __init__(self, do: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]], most: int) -> None:
        """`do` gives a result for each item, in order; one that is an exception is raised for its caller alone."""
        self._do = do
        self._most = most
        self._items: list[T] = []
        self._futures: list[asyncio.Future[R]] = []
        self._under_way = 0
        self._is_called = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, item: T) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._items.append(item)
        self._futures.append(future)
        if not self._is_called and self._under_way < UNDER_WAY_MAX:
            self._is_called = True
            loop.call_soon(self._send)  # after everything that is ready to run now
        return await future

    def _send(self) -> None:
        self._is_called = False
        while self._items and self._under_way < UNDER_WAY_MAX:
            items, self._items = self._items[: self._most], self._items[self._most :]
            futures, self._futures = self._futures[: self._most], self._futures[self._most :]
            self._under_way += 1
            task = asyncio.ensure_future(self._carry(items, futures))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, items: list[T], futures: list[asyncio.Future[R]]) -> None:
        try:
            results = await self._do(items)
        except BaseException as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            for future, result in zip(futures, results, strict=True):
                if future.done():
                    continue  # whoever asked has gone
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        finally:
            self._under_way -= 1
            self._send()
