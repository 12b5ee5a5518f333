"""Other people's databases, as the SQL step sees them: a connection for each run, one transaction on it, and its end.

A connection is made for a run and closed after it: it costs milliseconds, and nothing is left on it that the next one
might trip over. Whatever goes wrong is BadRequest (the statement, or its values, are refused, and would be again), or
DatabaseUnreachable (another try may be luckier).
"""

import asyncio
import base64
import contextlib
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from datp.errors import BadRequest, DatabaseUnreachable

T = TypeVar("T")

RESULT_TABLE: Final = "datp_step_result"

CREATE_TABLE: Final = {
    "sqlite": f"CREATE TABLE {RESULT_TABLE} (idempotency_key TEXT NOT NULL PRIMARY KEY, outcome TEXT NOT NULL)",
    "postgresql": f"CREATE TABLE {RESULT_TABLE} (idempotency_key text NOT NULL PRIMARY KEY, outcome text NOT NULL)",
    "mariadb": f"CREATE TABLE {RESULT_TABLE} (idempotency_key varchar(255) CHARACTER SET ascii COLLATE ascii_bin"
    " NOT NULL PRIMARY KEY, outcome longtext CHARACTER SET utf8mb4 NOT NULL) ENGINE = InnoDB",
}
"""The table in which an outcome is committed together with what the statements did."""

CONNECTIONS_MAX: Final = 10
"""Of one node to one database."""

_NAMED = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | --[^\n]* | /\*.*?\*/ | ::"""
    r""" | (?<![\w:]):(?P<name>[A-Za-z_][A-Za-z0-9_]*) | (?P<end>;)""",
    re.VERBOSE | re.DOTALL,
)
"""A parameter, or what may hold something that looks like one."""


class Found(msgspec.Struct, frozen=True):
    """What a statement came to."""

    changed: int
    rows: list[dict[str, Any]]


def names_in(statement: str) -> list[str]:
    """The parameters of a statement, each `:name`."""
    return list(dict.fromkeys(found["name"] for found in _NAMED.finditer(statement) if found["name"]))


def has_several(statement: str) -> bool:
    """Whether there is more than one statement in it."""
    ends = [found.end() for found in _NAMED.finditer(statement) if found["end"]]
    return bool(ends and statement[ends[0] :].strip())


class Work(ABC):
    """An open transaction."""

    dialect: str

    @abstractmethod
    async def run(self, statement: str, values: dict[str, Any], rows_max: int) -> Found:
        """The statement is done; raises BadRequest, DatabaseUnreachable."""

    @abstractmethod
    async def claim(self, key: str) -> str | None:
        """The key is ours until the transaction ends; or what came of it when it was somebody's before."""

    @abstractmethod
    async def keep(self, key: str, outcome: str) -> None:
        """The outcome is committed with everything else."""


class Target(ABC):
    """A database."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)

    @abstractmethod
    def opened(self, timeout_ms: int) -> Any:
        """A context with the work of one transaction: committed at its end, taken back if anything raises."""

    @asynccontextmanager
    async def transaction(self, timeout_ms: int) -> AsyncIterator[Work]:
        """An open transaction, within its time. Raises BadRequest, DatabaseUnreachable."""
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._slots, self.opened(timeout_ms) as work:
                yield work
        except TimeoutError:
            raise DatabaseUnreachable(f"the database took longer than {timeout_ms / 1000:g} s") from None


def target_for(url: str) -> Target:
    """The database of a URL; raises BadRequest, which doesn't show it."""
    scheme = url.partition("://")[0]
    kinds: dict[str, Callable[[str], Target]] = {
        "sqlite": SqliteTarget,
        "postgresql": PostgresqlTarget,
        "postgres": PostgresqlTarget,
        "mariadb": MariadbTarget,
        "mysql": MariadbTarget,
    }
    if "://" not in url or scheme not in kinds:
        raise BadRequest("the credential's URL is not of a database: sqlite:///, postgresql:// or mariadb://")
    try:
        return kinds[scheme](url)
    except ValueError:
        raise BadRequest("the credential's URL of a database can't be understood") from None


# ── SQLite ───────────────────────────────────────────────────────────────────────────────────────────────────────


class SqliteTarget(Target):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._path = Path(unquote(url.partition("://")[2].removeprefix("/")))

    @asynccontextmanager
    async def opened(self, timeout_ms: int) -> AsyncIterator[Work]:
        if not self._path.is_file():
            raise BadRequest("there is no such SQLite file; a step doesn't make databases")
        connection = sqlite3.connect(
            self._path, timeout=timeout_ms / 1000, isolation_level=None, check_same_thread=False
        )
        work = _SqliteWork(connection)
        try:
            await work.call(lambda: connection.execute("BEGIN IMMEDIATE"))
            yield work
            await work.call(lambda: connection.execute("COMMIT"))
        finally:
            await asyncio.to_thread(connection.close)  # which takes back what was not committed


class _SqliteWork(Work):
    dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def run(self, statement: str, values: dict[str, Any], rows_max: int) -> Found:
        def work() -> Found:
            cursor = self._connection.execute(statement, {name: _scalar(value) for name, value in values.items()})
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchmany(rows_max + 1) if names else []
            return _found(cursor.rowcount, names, rows, rows_max)

        return await self.call(work)

    async def claim(self, key: str) -> str | None:
        def work() -> str | None:
            cursor = self._connection.execute(
                f"INSERT INTO {RESULT_TABLE} (idempotency_key, outcome) VALUES (?, '') ON CONFLICT DO NOTHING", [key]
            )
            if cursor.rowcount:
                return None
            rows = self._connection.execute(f"SELECT outcome FROM {RESULT_TABLE} WHERE idempotency_key = ?", [key])
            return str(rows.fetchone()[0])

        return await self.call(work)

    async def keep(self, key: str, outcome: str) -> None:
        statement = f"UPDATE {RESULT_TABLE} SET outcome = ? WHERE idempotency_key = ?"
        await self.call(lambda: self._connection.execute(statement, [outcome, key]))

    async def call(self, work: Callable[[], T]) -> T:
        """What the work returns, done in a thread; it has ended when this returns, even if we are cancelled."""
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._connection.interrupt()
            with contextlib.suppress(sqlite3.Error):
                await running
            raise
        except sqlite3.Error as error:
            raise _refusal(str(error), passes=_passes_sqlite(error), dialect=self.dialect) from None
        except (OverflowError, UnicodeEncodeError) as error:
            raise BadRequest(f"the database can't hold a value: {error}") from None


def _passes_sqlite(error: sqlite3.Error) -> bool:
    name = getattr(error, "sqlite_errorname", "")
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL", "SQLITE_INTERRUPT"))


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────────────────────────

_PASSES_POSTGRESQL: Final = ("08", "25006", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE that another try may not have."""


class PostgresqlTarget(Target):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    @asynccontextmanager
    async def opened(self, timeout_ms: int) -> AsyncIterator[Work]:
        import psycopg

        try:
            connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, prepare_threshold=None, application_name="datp step"
            )
        except (psycopg.Error, ValueError, UnicodeError) as error:
            raise DatabaseUnreachable(f"there is no connection to the database: {_one_line(error)}") from None
        try:
            work = _PostgresqlWork(connection)
            await work.execute("BEGIN")
            # Should this process die, the statement ends by itself.
            await work.execute(f"SET LOCAL statement_timeout = {timeout_ms}")
            yield work
            await work.execute("COMMIT")
        finally:
            await connection.close()


class _PostgresqlWork(Work):
    dialect = "postgresql"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def run(self, statement: str, values: dict[str, Any], rows_max: int) -> Found:
        cursor = await self.execute(_percent(statement), {name: _scalar(value) for name, value in values.items()})
        names = [column.name for column in cursor.description or ()]
        rows = await cursor.fetchmany(rows_max + 1) if names else []
        return _found(cursor.rowcount, names, rows, rows_max)

    async def claim(self, key: str) -> str | None:
        insert = (
            f"INSERT INTO {RESULT_TABLE} (idempotency_key, outcome) VALUES (%(key)s, '')"
            " ON CONFLICT (idempotency_key) DO NOTHING"
        )
        if (await self.execute(insert, {"key": key})).rowcount:
            return None
        select = f"SELECT outcome FROM {RESULT_TABLE} WHERE idempotency_key = %(key)s"
        return str((await (await self.execute(select, {"key": key})).fetchone())[0])

    async def keep(self, key: str, outcome: str) -> None:
        update = f"UPDATE {RESULT_TABLE} SET outcome = %(outcome)s WHERE idempotency_key = %(key)s"
        await self.execute(update, {"key": key, "outcome": outcome})

    async def execute(self, statement: str, values: dict[str, Any] | None = None) -> Any:
        import psycopg

        try:
            return await self._connection.execute(statement.encode(), values)
        except psycopg.Error as error:
            state = error.sqlstate or ""
            passes = state.startswith(_PASSES_POSTGRESQL) or (not state and isinstance(error, psycopg.OperationalError))
            raise _refusal(_one_line(error), passes=passes, dialect=self.dialect) from None
        except (UnicodeEncodeError, OverflowError) as error:
            raise BadRequest(f"the database can't hold a value: {error}") from None


# ── MariaDB ──────────────────────────────────────────────────────────────────────────────────────────────────────

_PASSES_MARIADB: Final = frozenset(
    {*(1021, 1040, 1041, 1053, 1114, 1158, 1159, 1160, 1161, 1203, 1205, 1213), *(1226, 1290, 1317, 1927, 1969, 4031)}
)
"""No room, too many connections, shutting down, the network, a lock, a deadlock, read-only, killed, too slow."""


class MariadbTarget(Target):
    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        self._options: dict[str, Any] = {
            "host": parts.hostname or "localhost",
            "port": parts.port or 3306,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "db": unquote(parts.path.strip("/")),
            "unix_socket": parse_qs(parts.query).get("unix_socket", [None])[0],
            "charset": "utf8mb4",
            "autocommit": True,
        }

    @asynccontextmanager
    async def opened(self, timeout_ms: int) -> AsyncIterator[Work]:
        import asyncmy
        from asyncmy import errors

        # The mode decides how the client writes values, so it is set here, and not left to the server.
        init = f"SET SESSION sql_mode = 'STRICT_ALL_TABLES', SESSION max_statement_time = {timeout_ms / 1000}"
        try:
            connection = await asyncmy.connect(**self._options, init_command=init)
        except (errors.MySQLError, OSError, EOFError, ValueError) as error:
            raise DatabaseUnreachable(f"there is no connection to the database: {_one_line(error)}") from None
        try:
            work = _MariadbWork(connection)
            await work.execute("START TRANSACTION")
            yield work
            await work.execute("COMMIT")
        finally:
            connection.close()


class _MariadbWork(Work):
    dialect = "mariadb"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def run(self, statement: str, values: dict[str, Any], rows_max: int) -> Found:
        given = {name: _scalar(value) for name, value in values.items()}
        changed, names, rows = await self.execute(_percent(statement) if given else statement, given, rows_max + 1)
        return _found(changed, names, rows, rows_max)

    async def claim(self, key: str) -> str | None:
        insert = f"INSERT IGNORE INTO {RESULT_TABLE} (idempotency_key, outcome) VALUES (%(key)s, '')"
        changed, _, _ = await self.execute(insert, {"key": key})
        if changed:
            return None
        select = f"SELECT outcome FROM {RESULT_TABLE} WHERE idempotency_key = %(key)s"
        _, _, rows = await self.execute(select, {"key": key}, 1)
        return str(rows[0][0])

    async def keep(self, key: str, outcome: str) -> None:
        update = f"UPDATE {RESULT_TABLE} SET outcome = %(outcome)s WHERE idempotency_key = %(key)s"
        await self.execute(update, {"key": key, "outcome": outcome})

    async def execute(
        self, statement: str, values: dict[str, Any] | None = None, rows: int = 0
    ) -> tuple[int, list[str], Sequence[Sequence[Any]]]:
        from asyncmy import errors

        try:
            async with self._connection.cursor() as cursor:
                changed = await cursor.execute(statement, values or None)
                names = [column[0] for column in cursor.description or ()]
                return changed, names, await cursor.fetchmany(rows) if names and rows else []
        except errors.MySQLError as error:
            number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            says = " ".join(str(part) for part in error.args[1:]) or str(error)
            passes = number in _PASSES_MARIADB or not 1000 <= number < 2000
            raise _refusal(says, passes=passes, dialect=self.dialect) from None
        except (OSError, EOFError) as error:
            raise DatabaseUnreachable(f"the connection to the database was cut: {error}") from None
        except (UnicodeEncodeError, OverflowError) as error:
            raise BadRequest(f"the database can't hold a value: {error}") from None


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _percent(statement: str) -> str:
    """The statement with its parameters as psycopg and asyncmy want them."""
    made, at = [], 0
    for found in _NAMED.finditer(statement):
        if found["name"]:
            made += [statement[at : found.start()].replace("%", "%%"), f"%({found['name']})s"]
            at = found.end()
    return "".join([*made, statement[at:].replace("%", "%%")])


def _scalar(value: Any) -> Any:
    """A value as a database takes it: objects and lists as JSON."""
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict) else value


def _found(changed: int, names: list[str], rows: Sequence[Sequence[Any]], rows_max: int) -> Found:
    if len(rows) > rows_max:
        raise BadRequest(f"the statement finds more than rowsMax ({rows_max}) rows")
    made = [{name: _as_json(value) for name, value in zip(names, row, strict=True)} for row in rows]
    return Found(len(rows) if names else max(changed, 0), made)


def _as_json(value: Any) -> Any:
    """A database's value as JSON has it; exact numbers as texts, bytes in base64."""
    if value is None or isinstance(value, bool | int | float | str):
        return None if isinstance(value, float) and value - value != 0.0 else value
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, Decimal):
        return f"{value:f}" if value.is_finite() else None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, list | tuple):
        return [_as_json(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _as_json(one) for name, one in value.items()}
    return str(value)


def _refusal(says: str, *, passes: bool, dialect: str) -> BadRequest | DatabaseUnreachable:
    if passes:
        return DatabaseUnreachable(f"the database can't do it now: {says}")
    if RESULT_TABLE in says:
        return BadRequest(
            f"the database has no table for outcomes: {says}. Make it with: {CREATE_TABLE[dialect]};"
            " or set `once: false` for what may happen twice"
        )
    return BadRequest(f"the database refuses it: {says}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
