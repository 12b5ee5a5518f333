"""MariaDB, by asyncmy."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import asyncmy
from asyncmy import errors

from datp.archive.drivers import Lent, PooledDriver
from datp.archive.queries import Dialect, Query
from datp.errors import DatabaseError, DatabaseRefused, DatabaseUnreachable, RowsRefused
from datp.settings import Settings

PORT: Final = 3306

_NAMED = re.compile(r"%\(\w+\)s")

ACCESS: Final = frozenset({1044, 1045, 1049, 1130, 1698})
"""Access denied, unknown database, host not allowed."""

PASSES: Final = frozenset(
    {
        *(1021, 1040, 1041, 1053, 1114, 1158, 1159, 1160, 1161, 1203, 1205, 1213),
        *(1226, 1290, 1317, 1836, 1927, 1969, 4031),
    }
)
"""Errors of the server that another try may not have: no room, too many connections, shutting down, the network, a
lock, a deadlock, read-only, killed, too slow. Those of the client, from 2000 on, are all about the connection."""

TOO_LARGE: Final = frozenset({1118, 1153, 1366})
"""A row, a packet or a text that the server doesn't take; asyncmy has no class for them."""


def open_driver(url: str, settings: Settings) -> "MariadbDriver":
    return MariadbDriver(url, settings)


class MariadbDriver(PooledDriver):
    dialect: Dialect = "mariadb"

    def __init__(self, url: str, settings: Settings) -> None:
        super().__init__(settings)
        parts = urlsplit(url)
        socket = parse_qs(parts.query).get("unix_socket", [""])[0]
        self._options: dict[str, Any] = {
            "host": parts.hostname or "localhost",
            "port": parts.port or PORT,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "db": unquote(parts.path.strip("/")),
            "unix_socket": socket or None,
            "charset": "utf8mb4",
            "autocommit": True,
            # No locks on gaps between rows: archivers of different partitions don't wait for one another.
            # Strict: a text that is too long is refused, not cut.
            "init_command": "SET SESSION tx_isolation = 'READ-COMMITTED',"
            " SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
        }

    async def connect(self) -> Lent:
        async with _our_errors():
            connection = await asyncmy.connect(**self._options)
        return _Connection(connection, self._timeout_s)


class _Connection:
    def __init__(self, connection: Any, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    async def close(self) -> None:
        self._connection.close()

    async def rows(self, query: Query, **values: Any) -> list[tuple[Any, ...]]:
        async with self._cursor() as cursor:
            await cursor.execute(query.text, _given(query, values))
            return list(await cursor.fetchall())

    async def run(self, query: Query, **values: Any) -> int:
        async with self._cursor() as cursor:
            changed: int = await cursor.execute(query.text, _given(query, values))
            return changed

    async def run_many(self, query: Query, rows: Sequence[Sequence[Any]]) -> int | None:
        async with self._cursor() as cursor:
            # Without names MariaDB is sent one packet with all rows, in binary form.
            await cursor.executemany(_NAMED.sub("%s", query.text), rows)
        # A row that was replaced counts as two, so that the sum tells nothing.
        return None

    async def execute(self, statement: str) -> None:
        async with self._cursor() as cursor:
            await cursor.execute(statement)

    @asynccontextmanager
    async def _cursor(self) -> AsyncIterator[Any]:
        try:
            async with asyncio.timeout(self._timeout_s), _our_errors(), self._connection.cursor() as cursor:
                yield cursor
        except TimeoutError:
            raise DatabaseUnreachable(f"The database did not answer within {self._timeout_s:g} s") from None


def _given(query: Query, values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if name in query.lists else value for name, value in values.items()}


@asynccontextmanager
async def _our_errors() -> AsyncIterator[None]:
    """What asyncmy raises is raised as one of ours."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise RowsRefused(f"MariaDB can't hold a text: {error}") from None
    except errors.MySQLError as error:
        raise _as_ours(error) from None
    except (OSError, EOFError) as error:
        raise DatabaseUnreachable(f"The database can't be reached: {error or type(error).__name__}") from None


def _as_ours(error: Exception) -> DatabaseError:
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    says = " ".join(str(part) for part in error.args[1:]) or str(error)
    if number in ACCESS:
        return DatabaseRefused(f"MariaDB refuses this user, password or database: {says}")
    if number in TOO_LARGE or isinstance(error, errors.DataError | errors.IntegrityError):
        return RowsRefused(f"MariaDB refuses a value: {says}")
    if number in PASSES or not 1000 <= number < 2000:
        return DatabaseUnreachable(f"The database can't be reached: {says}")
    return DatabaseRefused(f"MariaDB refuses it: {says}")
