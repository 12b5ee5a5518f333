"""PostgreSQL, by psycopg."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg import errors

from datp.archive.drivers import Lent, PooledDriver
from datp.archive.queries import Dialect, Query
from datp.errors import DatabaseError, DatabaseRefused, DatabaseUnreachable, RowsRefused
from datp.settings import Settings

PASSES: Final = ("08", "25006", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE that another try may not have: connection, read-only (a standby), rolled back, resources (a full
disk), not now, an operator's intervention, the system."""

BAD_VALUE: Final = ("22", "23", "54")
"""Data, constraints, limits: what a row can be refused for."""


def open_driver(url: str, settings: Settings) -> "PostgresqlDriver":
    return PostgresqlDriver(url, settings)


class PostgresqlDriver(PooledDriver):
    dialect: Dialect = "postgresql"

    def __init__(self, url: str, settings: Settings) -> None:
        super().__init__(settings)
        self._url = url

    async def connect(self) -> Lent:
        async with _our_errors():
            connection = await psycopg.AsyncConnection.connect(
                self._url,
                autocommit=True,
                # A plan is made for each call's values: what is rare and what is common differ by far, and a pooler
                # between us needs no prepared statements. It costs 0.1 ms.
                prepare_threshold=None,
                application_name="datp",
            )
        return _Connection(connection, self._timeout_s)


class _Connection:
    def __init__(self, connection: psycopg.AsyncConnection[tuple[Any, ...]], timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    async def close(self) -> None:
        await self._connection.close()

    async def rows(self, query: Query, **values: Any) -> list[tuple[Any, ...]]:
        async with self._our_time():
            cursor = await self._connection.execute(query.text, values)
            return await cursor.fetchall()

    async def run(self, query: Query, **values: Any) -> int:
        async with self._our_time():
            return (await self._connection.execute(query.text, values)).rowcount

    async def run_many(self, query: Query, rows: Sequence[Sequence[Any]]) -> int | None:
        columns = dict(zip(query.names, map(list, zip(*rows, strict=True)), strict=True))
        async with self._our_time():
            return (await self._connection.execute(query.text, columns)).rowcount

    async def execute(self, statement: str) -> None:
        async with self._our_time():
            await self._connection.execute(statement.encode())

    @asynccontextmanager
    async def _our_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s), _our_errors():
                yield
        except TimeoutError:
            raise DatabaseUnreachable(f"The database did not answer within {self._timeout_s:g} s") from None


@contextlib.asynccontextmanager
async def _our_errors() -> AsyncIterator[None]:
    """What psycopg raises is raised as one of ours."""
    try:
        yield
    except (psycopg.Error, UnicodeEncodeError) as error:
        raise _as_ours(error) from None


def _as_ours(error: psycopg.Error | UnicodeEncodeError) -> DatabaseError:
    state = getattr(error, "sqlstate", None) or ""
    says = " ".join(str(error).split())
    if isinstance(error, UnicodeEncodeError | psycopg.DataError | psycopg.IntegrityError) or state.startswith(
        BAD_VALUE
    ):
        return RowsRefused(f"PostgreSQL refuses a value: {says}")
    if state.startswith(PASSES) or (not state and isinstance(error, psycopg.OperationalError)):
        if isinstance(error, errors.OperationalError) and _is_about_access(says):
            return DatabaseRefused(f"PostgreSQL refuses this user, password or database: {says}")
        return DatabaseUnreachable(f"The database can't be reached: {says}")
    return DatabaseRefused(f"PostgreSQL refuses it: {says}")


def _is_about_access(says: str) -> bool:
    """A failed connection has no SQLSTATE, only words."""
    return any(word in says for word in ("authentication failed", "no password supplied", "does not exist", "pg_hba"))
