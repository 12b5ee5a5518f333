"""The database: one typed method per query, and the only caller of SQL.

    database = Database("sqlite:///archive.sqlite", settings)
    await database.open()
    await database.register_store(store_id, epoch, partitions)
    newer = await database.write_states(states)

A method is one SQL transaction, and durable when it returns. Whatever goes wrong is a DatabaseError: one that may pass
(DatabaseUnreachable), or one that will not (DatabaseRefused). The queries are files in `sql/`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from datp.archive import migrate
from datp.archive.drivers import Connection, driver_for
from datp.archive.queries import queries
from datp.archive.record import COLUMNS, ArchivedState, Row, from_row, to_row
from datp.errors import DatabaseRefused, RowsRefused
from datp.settings import Settings

FIRST: Final = ""
"""Where paging begins: before every txId."""


ENCODED_AT_ONCE: Final = 50
"""States; half a millisecond, so that who shares the event loop isn't held up by a whole batch."""


class Database:
    """A database, opened: its schema has been checked."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.settings = settings
        self.driver = driver_for(url, settings)
        self.store_id = ""
        self.epoch = 0
        """Of the store whose states are written; 0 until it is registered."""
        self._queries = queries(self.driver.dialect)

    async def open(self) -> None:
        """The schema is the one that we know; raises DatabaseError."""
        await migrate.check(self.driver)

    async def close(self) -> None:
        await self.driver.close()

    async def ping(self) -> dict[str, Any]:
        """What the server says of itself: server, version, what makes a commit durable; and the schema's version."""
        async with self.driver.reading() as connection:
            (row,) = await connection.rows(self._queries["describe_server"])
        names = DESCRIBED[self.driver.dialect]
        applied = [one.version for one in await migrate.status(self.driver) if one.applied_at is not None]
        return {**dict(zip(names, row, strict=True)), "schema": max(applied, default=0)}

    # ── which store ──────────────────────────────────────────────────────────────────────────────────────────

    async def register_store(self, store_id: str, epoch: int, partitions: int) -> None:
        """This store is archived here, and no other; raises DatabaseRefused if it is another, or was replaced."""
        async with self.driver.writing() as connection:
            await connection.run(self._queries["insert_store"], store_id=store_id, epoch=epoch, partitions=partitions)
            # A store that was rebuilt while this database was away, or restored from a copy, is ahead of it.
            await connection.run(self._queries["set_epoch"], epoch=epoch, store_id=store_id)
            ((held_id, held_epoch, held_partitions),) = await connection.rows(self._queries["lock_store"])
            if held_id != store_id:
                raise DatabaseRefused(
                    f"This database is the archive of store {held_id}, not of {store_id}: each store has its own"
                )
            if held_partitions != partitions:
                raise DatabaseRefused(
                    f"The archive of store {store_id} has {held_partitions} partitions, but the store has {partitions}"
                )
            if held_epoch > epoch:
                raise _replaced(held_epoch, epoch)
        self.store_id, self.epoch = store_id, epoch

    async def raise_epoch(self) -> int:
        """The store's next life begins: writes of its earlier ones are refused from now on; the new epoch."""
        async with self.driver.writing() as connection:
            await connection.run(self._queries["raise_epoch"])
            rows = await connection.rows(self._queries["lock_store"])
            if not rows:
                raise DatabaseRefused("No store is archived in this database, so there is none to be rebuilt from it")
            ((self.store_id, self.epoch, _),) = rows
        return self.epoch

    # ── states ───────────────────────────────────────────────────────────────────────────────────────────────

    async def write_states(self, states: Sequence[ArchivedState]) -> dict[str, int]:
        """SQL holds these states, or newer ones: for each that was not taken, the version that is held instead.

        The same version again changes nothing, and counts as taken. If some can't be stored by anybody, the others are
        stored in smaller transactions, and RowsRefused names those that are not.
        """
        # In one order, whoever writes: so two of us may wait for one another's row, but not each for the other's.
        rows = []
        for place, state in enumerate(sorted(states, key=lambda state: state.tx_id), 1):
            rows.append(to_row(state))
            if place % ENCODED_AT_ONCE == 0:
                await asyncio.sleep(0)
        assert len({row[0] for row in rows}) == len(rows), "a transaction comes once in a batch"
        held: dict[str, int] = {}
        refused: dict[str, str] = {}
        await self._write_what_can_be(rows, held, refused)
        if refused:
            tx_id, why = next(iter(refused.items()))
            others = f", nor {len(refused) - 1} others" if len(refused) > 1 else ""
            raise RowsRefused(f"{tx_id} can't be archived{others}: {why}", refused=refused, held=held)
        return held

    async def read_states(self, tx_ids: Sequence[str]) -> dict[str, ArchivedState]:
        """Those that are here."""
        if not tx_ids:
            return {}
        async with self.driver.reading() as connection:
            rows = await connection.rows(self._queries["read_states"], tx_ids=list(tx_ids))
        return {row[0]: from_row(row) for row in rows}

    async def find_external_id(self, owner: str, external_id: str) -> tuple[str, str] | None:
        """The newest transaction that the owner started with it: its id, and the hash of its request."""
        async with self.driver.reading() as connection:
            rows = await connection.rows(self._queries["find_external_id"], owner=owner, external_id=external_id)
        return (rows[0][0], rows[0][1]) if rows else None

    async def raise_version(self, tx_id: str, from_version: int, to_version: int) -> bool:
        """A live transaction has the new version; false if it no longer has the old one, or is final."""
        async with self.driver.writing() as connection:
            await self._check_life(connection)
            changed = await connection.run(
                self._queries["raise_version"], tx_id=tx_id, from_version=from_version, to_version=to_version
            )
        return changed == 1

    # ── pages for the reconciler and the rebuild ─────────────────────────────────────────────────────────────

    async def live_states(self, after: str = FIRST, count: int = 500) -> list[ArchivedState]:
        """The next of those that are not final, by txId; fewer than `count`: there are no more."""
        async with self.driver.reading() as connection:
            rows = await connection.rows(self._queries["live_states"], after=after, count=count)
        return [from_row(row) for row in rows]

    async def owed_replies(self, after: str = FIRST, count: int = 500) -> list[ArchivedState]:
        """The next of the final ones whose clients have not been told, by txId."""
        async with self.driver.reading() as connection:
            rows = await connection.rows(self._queries["owed_replies"], after=after, count=count)
        return [from_row(row) for row in rows]

    async def recent_external_ids(
        self, since_ms: int, after: tuple[int, str] | None = None, count: int = 500
    ) -> list[tuple[str, str, str, str, int]]:
        """owner, externalId, txId, request's hash, end, of what ended since; `after`: the last one's end and txId."""
        after_ms, after_id = after or (since_ms, FIRST)
        async with self.driver.reading() as connection:
            rows = await connection.rows(
                self._queries["recent_external_ids"], after_ms=after_ms, after_id=after_id, count=count
            )
        return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _write_what_can_be(self, rows: Sequence[Row], held: dict[str, int], refused: dict[str, str]) -> None:
        try:
            held.update(await self._write(rows))
        except RowsRefused as error:
            if len(rows) == 1:
                refused[rows[0][0]] = str(error)
                return
            middle = len(rows) // 2
            await self._write_what_can_be(rows[:middle], held, refused)
            await self._write_what_can_be(rows[middle:], held, refused)

    async def _write(self, rows: Sequence[Row]) -> dict[str, int]:
        """All of them in one transaction, or none."""
        query = self._queries["upsert_states"]
        assert query.names == COLUMNS
        if not rows:
            return {}
        async with self.driver.writing() as connection:
            await self._check_life(connection)
            if await connection.run_many(query, rows) == len(rows):
                return {}
            found = await connection.rows(self._queries["held_versions"], tx_ids=[row[0] for row in rows])
        held = dict(found)
        return {row[0]: held[row[0]] for row in rows if held[row[0]] != row[1]}

    async def _check_life(self, connection: Connection) -> None:
        """The store that is written for is the one that SQL knows, and stays so until the transaction ends."""
        assert self.epoch, "a store is registered before its states are written"
        rows = await connection.rows(self._queries["lock_store"])
        if not rows or rows[0][0] != self.store_id:
            raise DatabaseRefused(f"This database is no longer the archive of store {self.store_id}")
        if rows[0][1] > self.epoch:
            raise _replaced(rows[0][1], self.epoch)


DESCRIBED: Final = {
    "sqlite": ("server", "version", "synchronous", "journal_mode"),
    "postgresql": ("server", "version", "synchronous_commit", "fsync"),
    "mariadb": ("server", "version", "innodb_flush_log_at_trx_commit", "sync_binlog"),
}
"""What describe_server tells, in order."""


def _replaced(held: int, ours: int) -> DatabaseRefused:
    return DatabaseRefused(
        f"This store was replaced: the archive is at epoch {held}, the store at {ours}."
        " A rebuild made a new store from the archive; use that one, and don't let nodes run on this"
    )
