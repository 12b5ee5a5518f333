"""The follower: deadlines of transfers whose history somebody else appends to; the foreign tables are never written.

    follower = Follower(database, Source("hub"))
    while (await follower.scan()).changes: …

Each state change is read once, from where the last scan stopped (the segment). What is pending then waits for its
deadline, in a table that only what has changed touches; what is due becomes one event. Everything of a scan but the
look at the history's end is one SQL transaction: it happens or it doesn't.

Ids are given before they are committed, so a lower one may come later than a higher one. A hole in the ids that a scan
passed is remembered, and looked at again until nobody can fill it any more.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from datp.archive.database import Database
from datp.archive.drivers import Connection
from datp.archive.queries import Query, queries
from datp.errors import BadDefinition
from datp.transfers.ledger import PACKAGE
from datp.transfers.state import PENDING

_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


@dataclass(frozen=True)
class Source:
    """A history that somebody else appends to, in the same database or one that the user may read."""

    name: str
    transfers: str = "transfer"
    """The table with transferId and expirationDate (UTC)."""
    history: str = "transferStateChange"
    """The table with transferStateChangeId, transferId and transferStateId."""
    hole_ms: int = 600_000
    """How long a hole in the ids is looked at: longer than any transaction that writes them takes."""

    def __post_init__(self) -> None:
        for table in (self.transfers, self.history):
            if not _TABLE.fullmatch(table):
                raise BadDefinition(f"{table!r} is not the name of a table of the source {self.name}")


class Scanned(msgspec.Struct, frozen=True, rename="camel"):
    """What one scan did."""

    after: int
    until: int
    """The segment, before and now."""
    changes: int
    """State changes that were read."""
    found_late: int
    """Of them, those in holes that were passed before."""
    due: int
    """Transfers that became events."""


class Follower:
    """Follows one source; any number of processes may, and each scan is one of theirs."""

    def __init__(self, database: Database, source: Source, now_ms: Callable[[], int] | None = None) -> None:
        self.source = source
        self._driver = database.driver
        self._held_now = now_ms
        self._queries = {
            name: replace(query, text=_with_tables(query, source))
            for name, query in queries(database.driver.dialect, PACKAGE).items()
        }

    async def scan(self, changes_max: int = 100_000, due_max: int = 1_000) -> Scanned:
        """The next changes are read, and what is due is to be told. Fewer than asked: there are no more for now."""
        after = await self._segment()
        until, number = await self._end(after, changes_max)
        async with self._driver.writing() as connection:
            now = await self._now(connection)
            held = await connection.rows(
                self._queries["lock_segment"], source=self.source.name, table_name=self.source.history
            )
            if (held[0][0] if held else 0) != after:
                # Somebody else has read this stretch meanwhile.
                return Scanned(after, after, 0, 0, 0)
            if number:
                await self._follow(connection, after, until, number, now)
            late = await self._look_into_holes(connection, now)
            due = await self._find_due(connection, now, due_max)
        return Scanned(after, until, number + late, late, due)

    async def waiting(self) -> int:
        """How many of the source's transfers wait for their deadline."""
        async with self._driver.reading() as connection:
            ((number,),) = await connection.rows(self._queries["count_timeouts"], source=self.source.name)
        return int(number)

    async def disagreeing(self, after: str = "", count: int = 500) -> tuple[list[str], str]:
        """Of the next that wait for their deadline, those that the history says are settled; and where to go on.

        '' when there are no more. What the follower has not read yet is no disagreement, but may look like one for as
        long as it lags behind.
        """
        async with self._driver.reading() as connection:
            rows = await connection.rows(
                self._queries["read_timeouts"], source=self.source.name, after=after, count=count
            )
            ids = [row[0] for row in rows]
            states = (
                {row[0]: row[1] for row in await connection.rows(self._queries["latest_states"], ids=ids)}
                if ids
                else {}
            )
        wrong = [one for one in ids if states.get(one) not in PENDING]
        return wrong, ids[-1] if len(ids) == count else ""

    # ── pieces of a scan ─────────────────────────────────────────────────────────────────────────────────────

    async def _segment(self) -> int:
        async with self._driver.reading() as connection:
            rows = await connection.rows(
                self._queries["read_segment"], source=self.source.name, table_name=self.source.history
            )
        return rows[0][0] if rows else 0

    async def _end(self, after: int, count: int) -> tuple[int, int]:
        async with self._driver.reading() as connection:
            ((until, number),) = await connection.rows(self._queries["history_end"], after=after, count=count)
        return int(until), int(number)

    async def _follow(self, connection: Connection, after: int, until: int, number: int, now: int) -> None:
        """The stretch was read."""
        name = self.source.name
        if until - after > number:
            for first_id, last_id in await connection.rows(self._queries["history_holes"], after=after, until=until):
                await connection.run(
                    self._queries["insert_gap"], source=name, first_id=first_id, last_id=last_id, now=now
                )
        if "follow_changes" in self._queries:
            await connection.run(self._queries["follow_changes"], source=name, after=after, until=until, now=now)
        else:
            await connection.run(self._queries["prepare_latest"])
            if "empty_latest" in self._queries:
                await connection.run(self._queries["empty_latest"])
            await connection.run(self._queries["fill_latest"], after=after, until=until)
            await connection.run(self._queries["settle_latest"], source=name)
            await connection.run(self._queries["keep_latest"], source=name, now=now)
        await connection.run(
            self._queries["save_segment"], source=name, table_name=self.source.history, value=until, now=now
        )

    async def _look_into_holes(self, connection: Connection, now: int) -> int:
        """What was committed late is followed; how many changes that were."""
        name = self.source.name
        since = now - self.source.hole_ms
        found: dict[str, None] = {}
        number = 0
        for first_id, last_id in await connection.rows(self._queries["list_gaps"], source=name, since=since):
            rows = await connection.rows(self._queries["history_range"], first_id=first_id, last_id=last_id)
            if not rows:
                continue
            number += len(rows)
            found.update((row[1], None) for row in rows)
            await connection.run(self._queries["delete_gap"], source=name, first_id=first_id)
            for first, last in _rest_of(first_id, last_id, [row[0] for row in rows]):
                await connection.run(self._queries["insert_gap"], source=name, first_id=first, last_id=last, now=now)
        await connection.run(self._queries["delete_old_gaps"], source=name, since=since)
        if found:
            await self._follow_these(connection, list(found), now)
        return number

    async def _follow_these(self, connection: Connection, ids: Sequence[str], now: int) -> None:
        """These are as the whole of their history says: what came late may not be what came last."""
        for transfer_id, state, expiration in await connection.rows(self._queries["latest_states"], ids=list(ids)):
            if state in PENDING and expiration is not None:
                await connection.run(
                    self._queries["save_timeout"],
                    source=self.source.name,
                    transfer_id=transfer_id,
                    expiration=expiration,
                    now=now,
                )
            else:
                await connection.run(self._queries["delete_timeouts"], source=self.source.name, ids=[transfer_id])

    async def _find_due(self, connection: Connection, now: int, count: int) -> int:
        """What is due waits no more, and is to be told."""
        rows = await connection.rows(self._queries["due_timeouts"], source=self.source.name, now=now, count=count)
        if rows:
            ids = [row[0] for row in rows]
            await connection.run(self._queries["insert_timed_out"], source=self.source.name, ids=ids, now=now)
            await connection.run(self._queries["delete_timeouts"], source=self.source.name, ids=ids)
        return len(rows)

    async def _now(self, connection: Connection) -> int:
        if self._held_now is not None:
            return self._held_now()
        ((now,),) = await connection.rows(self._queries["now"])
        return int(now)


def _with_tables(query: Query, source: Source) -> str:
    return query.text.replace("{history}", source.history).replace("{transfers}", source.transfers)


def _rest_of(first: int, last: int, filled: Sequence[int]) -> list[tuple[int, int]]:
    """What is left of a hole when these ids of it are there."""
    rest: list[tuple[int, int]] = []
    begins = first
    for one in [*filled, last + 1]:
        if one > begins:
            rest.append((begins, one - 1))
        begins = one + 1
    return rest
