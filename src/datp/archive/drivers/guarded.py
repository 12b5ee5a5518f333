"""A driver that may have to look first: a process that began while its database was away checks it when it is back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from datp.archive.drivers import Connection, Driver, Upsert
from datp.archive.queries import Dialect
from datp.archive.record import Row

Check = Callable[[], Awaitable[None]]


class GuardedDriver:
    """The driver within, once what is asked of it first has been found to be so."""

    def __init__(self, within: Driver) -> None:
        self.within = within
        self.dialect: Dialect = within.dialect
        self._check: Check | None = None
        self._looking = asyncio.Lock()

    def check_first(self, check: Check) -> None:
        """Nobody is lent a connection before this has passed; it is tried again by whoever comes next."""
        self._check = check

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        await self._look()
        async with self.within.reading() as connection:
            yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Connection]:
        await self._look()
        async with self.within.writing() as connection:
            yield connection

    async def write_rows(self, rows: Sequence[Row], how: Upsert) -> list[Row]:
        await self._look()
        return await self.within.write_rows(rows, how)

    async def close(self) -> None:
        await self.within.close()

    async def _look(self) -> None:
        if self._check is None:
            return
        async with self._looking:
            if self._check is not None:
                await self._check()
                self._check = None
