"""Which database a command talks to, when it needs no store."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from datp.archive.database import Database
from datp.cli.connect import find_database_url
from datp.errors import BadRequest
from datp.settings import load

T = TypeVar("T")


def with_database(given: str, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
    """What the work returns, done with the database that is meant; raises BadRequest, DatabaseError."""
    settings = load()
    url = given or find_database_url("", settings)
    if not url:
        raise BadRequest(
            "No database is known: name one with --database-url or DATP_DATABASE_URL, or start a datp dev here"
        )

    async def opened() -> T:
        database = Database(url, settings)
        try:
            await database.open()
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(opened())


def now_ms() -> int:
    """The time on this machine: there may be no store to be asked."""
    return time.time_ns() // 1_000_000
