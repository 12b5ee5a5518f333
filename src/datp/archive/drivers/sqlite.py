"""SQLite: one connection that writes and a few that read, each with a thread of its own."""

import asyncio
import contextlib
import json
import re
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from datp.archive.drivers import Row, Upsert
from datp.archive.queries import Dialect, Query
from datp.errors import DatabaseError, DatabaseRefused, DatabaseUnreachable, RowsRefused
from datp.settings import Settings

T = TypeVar("T")

CHECKPOINT_PAGES: Final = 25_000
"""Of the write-ahead log: pages that are written often, such as those of indexes, go to the file once per 100 MB. With
10 000, a fifth fewer rows are written; with 1000, SQLite's own, half as many."""

CACHE_KIB: Final = 65_536
"""For the connection that writes: the pages to which its indexes are being appended."""

STATEMENTS: Final = 256
"""Prepared ones that a connection keeps: all of ours."""

ROWS_AT_ONCE: Final = 50
"""In one statement, during which Python's lock is free: row by row, a busy event loop would get it in between, and keep
it for 5 ms each time (22 000 rows/s instead of 37 000, while another batch is being encoded)."""

SWITCH_S: Final = 0.0005
"""How long a thread of Python may keep another waiting, instead of 5 ms: what writes needs Python's lock between two
statements, while the event loop encodes the next batch (1000 rows take 10 ms instead of 14)."""

PASSES: Final = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_INTERRUPT"})
"""Errors that another try may not have."""


def open_driver(url: str, settings: Settings) -> "SqliteDriver":
    return SqliteDriver(path_of(url), settings)


def path_of(url: str) -> Path:
    """sqlite:///relative/path and sqlite:////absolute/path, as others write it."""
    return Path(unquote(url.partition("://")[2].removeprefix("/")))


class SqliteDriver:
    """A file, and the connections to it."""

    dialect: Dialect = "sqlite"

    def __init__(self, path: Path, settings: Settings) -> None:
        self._path = path.absolute()
        self._timeout_ms = settings.database_timeout_ms
        self._readers_max = settings.database_connections_max
        self._writer: _Connection | None = None
        self._turn = asyncio.Lock()
        """SQLite has one writer; who waits here waits in order, which its own busy handler doesn't promise."""
        self._slots = asyncio.Semaphore(self._readers_max)
        self._idle: list[_Connection] = []

    @asynccontextmanager
    async def reading(self) -> AsyncIterator["_Connection"]:
        async with self._slots:
            if self._writer is None:
                async with self._turn:
                    # It makes the file, and the write-ahead log, which readers can't.
                    await self._open_writer()
            connection = self._idle.pop() if self._idle else await self._connect(writes=False)
            try:
                yield connection
            finally:
                self._idle.append(connection)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator["_Connection"]:
        async with self._turn:
            connection = await self._open_writer()
            await connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                await connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(DatabaseError):  # it has ended already: the disk is full, for one
                    await asyncio.shield(connection.execute("ROLLBACK"))
                raise
        # Who waits for the turn begins now, not when this task has prepared its next batch.
        await asyncio.sleep(0)

    async def write_rows(self, rows: Sequence[Row], how: Upsert) -> list[Row]:
        async with self._turn:
            connection = await self._open_writer()
            found = await connection.write_rows(rows, how)
        await asyncio.sleep(0)  # as above
        return found

    async def close(self) -> None:
        async with self._turn:
            connections = [*self._idle, *([self._writer] if self._writer else [])]
            self._idle, self._writer = [], None
            for connection in connections:
                await connection.close()

    async def _open_writer(self) -> "_Connection":
        if self._writer is None:
            sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
            self._writer = await self._connect(writes=True)
        return self._writer

    async def _connect(self, *, writes: bool) -> "_Connection":
        connection = _Connection(self._path)
        try:
            await connection.open(self._timeout_ms, writes=writes)
        except BaseException:
            await connection.close()
            raise
        return connection


class _Connection:
    """A connection and its thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        self._connection: sqlite3.Connection

    async def open(self, timeout_ms: int, *, writes: bool) -> None:
        await self._in_thread(lambda: self._open(timeout_ms, writes))

    async def close(self) -> None:
        def close() -> None:
            with contextlib.suppress(AttributeError):  # it was never opened
                self._connection.close()

        await self._in_thread(close)
        self._thread.shutdown(wait=False)

    async def rows(self, query: Query, **values: Any) -> list[tuple[Any, ...]]:
        given = _in_order(query, values)
        return await self._in_thread(lambda: self._connection.execute(query.text, given).fetchall())

    async def run(self, query: Query, **values: Any) -> int:
        given = _in_order(query, values)
        return await self._in_thread(lambda: self._connection.execute(query.text, given).rowcount)

    async def run_many(self, query: Query, rows: Sequence[Sequence[Any]]) -> int | None:
        return await self._in_thread(lambda: self._write(query, rows))

    async def write_rows(self, rows: Sequence[Row], how: Upsert) -> list[Row]:
        """A whole transaction in one visit to the thread: each visit more waits for the event loop twice."""

        def write() -> list[Row]:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                how.check(self._connection.execute(how.first.text).fetchall())
                found = []
                if self._write(how.query, rows) < len(rows):
                    given = _in_order(how.held, {"tx_ids": [row[0] for row in rows]})
                    found = self._connection.execute(how.held.text, given).fetchall()
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # it has ended already: the disk is full, for one
                    self._connection.execute("ROLLBACK")
                raise
            return found

        return await self._in_thread(write)

    def _write(self, query: Query, rows: Sequence[Sequence[Any]]) -> int:
        """The query is done for each row; how many were changed. Runs in the thread."""
        changed = 0
        whole = len(rows) // ROWS_AT_ONCE * ROWS_AT_ONCE
        text = _for_many(query) if whole else ""
        for place in range(0, whole, ROWS_AT_ONCE):
            values = [value for row in rows[place : place + ROWS_AT_ONCE] for value in row]
            changed += self._connection.execute(text, values).rowcount
        if whole < len(rows):
            changed += self._connection.executemany(query.text, rows[whole:]).rowcount
        return changed

    async def execute(self, statement: str) -> None:
        await self._in_thread(lambda: self._connection.execute(statement))

    def _open(self, timeout_ms: int, writes: bool) -> None:
        if not self._path.parent.is_dir():
            raise DatabaseRefused(
                f"There is no directory {self._path.parent} for the archive {self._path.name};"
                " an absolute path has four slashes: sqlite:////var/lib/datp/archive.sqlite"
            )
        self._connection = sqlite3.connect(
            self._path,
            timeout=timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=STATEMENTS,
        )
        for pragma in (
            ("journal_mode=WAL", "synchronous=FULL", f"cache_size=-{CACHE_KIB}", "temp_store=MEMORY",
             f"wal_autocheckpoint={CHECKPOINT_PAGES}")
            if writes
            # What `ping` tells of is what the writer has.
            else ("query_only=ON", "synchronous=FULL", "temp_store=MEMORY")
        ):  # fmt: skip
            self._connection.execute(f"PRAGMA {pragma}").fetchall()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def done() -> T:
            with _our_errors():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._thread, done)


@cache
def _for_many(query: Query) -> str:
    """The query for ROWS_AT_ONCE rows."""
    places = ", ".join(f"?{place}" for place in range(1, len(query.names) + 1))
    before, found, after = re.sub(r"\s+", " ", query.text).partition(f"VALUES ( {places} )")
    assert found, f"{query.name} must name its parameters in one order, between VALUES ( and )"
    row = f"({', '.join('?' * len(query.names))})"
    return f"{before}VALUES {', '.join([row] * ROWS_AT_ONCE)}{after}"


def _in_order(query: Query, values: dict[str, Any]) -> list[Any]:
    return [json.dumps(list(values[name])) if name in query.lists else values[name] for name in query.names]


@contextlib.contextmanager
def _our_errors() -> Iterator[None]:
    """What sqlite3 raises is raised as one of ours."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError) as error:
        raise RowsRefused(f"SQLite refuses a row: {error}") from None
    except (OverflowError, UnicodeEncodeError) as error:
        raise RowsRefused(f"SQLite can't hold a value: {error}") from None
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if "_".join(name.split("_")[:2]) in PASSES:
            raise DatabaseUnreachable(f"SQLite can't do it now: {error}") from None
        raise DatabaseRefused(f"SQLite refuses it: {error}") from None
