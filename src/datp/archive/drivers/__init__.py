"""What a database must be able to do for us; each driver does it in its own way, with the same errors."""

import asyncio
import contextlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from datp.archive.queries import Dialect, Query
from datp.errors import BadRequest, DatabaseUnreachable
from datp.settings import Settings

SCHEMES: Final[dict[str, Dialect]] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mariadb": "mariadb",
    "mysql": "mariadb",
}


Row = tuple[Any, ...]


class Connection(Protocol):
    """A connection that is lent for some queries; they raise DatabaseError."""

    async def rows(self, query: Query, **values: Any) -> list[tuple[Any, ...]]:
        """What the query finds."""

    async def run(self, query: Query, **values: Any) -> int:
        """The query is done; how many rows it changed."""

    async def run_many(self, query: Query, rows: Sequence[Sequence[Any]]) -> int | None:
        """The query is done for each row of parameters; how many rows it changed, None if the database can't say."""

    async def execute(self, statement: str) -> None:
        """A statement of a migration is done."""


class Upsert(NamedTuple):
    """How rows are written in one transaction."""

    first: Query
    """Read before anything is written."""
    check: Callable[[list[Row]], None]
    """Given what it found; raises if nothing may be written."""
    query: Query
    """Done for every row."""
    held: Query
    """What is there of the rows' ids; asked if not every row was taken."""


class Driver(Protocol):
    """A database; it connects when it is first needed, and again after a connection was lost."""

    dialect: Dialect

    def reading(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for queries that change nothing; each sees what is committed when it begins."""

    def writing(self) -> AbstractAsyncContextManager[Connection]:
        """A connection in a transaction: committed at the end, taken back if anything raises."""

    async def write_rows(self, rows: Sequence[Row], how: Upsert) -> list[Row]:
        """All rows in one transaction, or none; what `held` found, or nothing if every row was taken."""

    async def close(self) -> None:
        """Every connection is closed."""


def driver_for(url: str, settings: Settings) -> Driver:
    """The driver for a URL. Only its own library is imported, which takes time; raises BadRequest."""
    try:
        parts = urlsplit(url)
        dialect = SCHEMES.get(parts.scheme)
        is_fine = bool(dialect and (len(parts.path) > 1 if dialect == "sqlite" else parts.path.strip("/")))
        _ = parts.port
    except ValueError:
        is_fine, dialect = False, None
    if not is_fine or dialect is None:
        raise BadRequest(
            f"{url.partition('://')[0]}://… is not the URL of a database: sqlite:///archive.sqlite,"
            " postgresql://user:password@host:5432/name or mariadb://user:password@host:3306/name",
            field="database_url",
        )
    module = importlib.import_module(f"datp.archive.drivers.{dialect}")
    return cast(Driver, module.open_driver(url, settings))


class Lent(Connection, Protocol):
    """A connection of a server, as its pool sees it."""

    async def close(self) -> None:
        """Closed; the server takes back what was not committed."""


class PooledDriver(ABC):
    """A driver of a server: a few connections, each used by one at a time, and thrown away when anything is odd."""

    dialect: Dialect

    def __init__(self, settings: Settings) -> None:
        self._timeout_s = settings.database_timeout_ms / 1000
        self._slots = asyncio.Semaphore(settings.database_connections_max)
        self._idle: list[Lent] = []

    @abstractmethod
    async def connect(self) -> Lent:
        """A new connection; raises DatabaseError."""

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        async with self._lend() as connection:
            yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Connection]:
        async with self._lend() as connection:
            await connection.execute("BEGIN")
            yield connection
            await connection.execute("COMMIT")

    async def write_rows(self, rows: Sequence[Row], how: Upsert) -> list[Row]:
        async with self.writing() as connection:
            how.check(await connection.rows(how.first))
            if await connection.run_many(how.query, rows) == len(rows):
                return []
            return await connection.rows(how.held, tx_ids=[row[0] for row in rows])

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[Lent]:
        async with self._slots:
            connection = self._idle.pop() if self._idle else await self._in_time(self.connect())
            is_fine = False
            try:
                yield connection
                is_fine = True
            finally:
                if is_fine:
                    self._idle.append(connection)
                else:
                    # Whether it can still be used, and whether the others can, isn't worth finding out: errors are
                    # rare. Closing it also takes the transaction back.
                    with contextlib.suppress(Exception):
                        await connection.close()
                    await self.close()

    async def _in_time(self, connecting: Any) -> Lent:
        try:
            async with asyncio.timeout(self._timeout_s):
                return cast(Lent, await connecting)
        except TimeoutError:
            raise DatabaseUnreachable(
                f"The database can't be reached: no connection within {self._timeout_s:g} s"
            ) from None
