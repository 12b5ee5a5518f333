"""Drafts in SQL: for each pipeline at most one next version that is still being written."""

from typing import NamedTuple

from datp.archive.database import Database
from datp.archive.logbook import storable
from datp.archive.queries import queries
from datp.model.values import printable

AUTHOR_LENGTH_MAX = 500
"""The columns hold so many characters."""


class Draft(NamedTuple):
    """A draft, without what it says. The fields are in the order of the queries."""

    name: str
    author: str
    saved_at: int


class Drafts:
    """The drafts of a database. Each method raises DatabaseError."""

    def __init__(self, database: Database) -> None:
        self._driver = database.driver
        self._queries = queries(database.driver.dialect)

    async def save(self, name: str, definition: str, author: str, *, at_ms: int) -> None:
        """The pipeline's draft says this."""
        async with self._driver.writing() as connection:
            await connection.run(
                self._queries["save_draft"],
                name=name,
                definition=definition,
                author=storable(printable(author, AUTHOR_LENGTH_MAX)),
                saved_at=at_ms,
            )

    async def find(self, name: str) -> str | None:
        """What the pipeline's draft says; None when it has none."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["find_draft"], name=name)
        return rows[0][0] if rows else None

    async def every(self) -> dict[str, Draft]:
        """The drafts, by the names of their pipelines."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["list_drafts"])
        return {row[0]: Draft(*row) for row in rows}

    async def discard(self, name: str) -> bool:
        """The pipeline has no draft; whether it had one."""
        async with self._driver.writing() as connection:
            return await connection.run(self._queries["delete_draft"], name=name) > 0
