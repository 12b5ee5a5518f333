"""The database: one typed method per query, and the only caller of SQL.

    database = Database("sqlite:///archive.sqlite", settings)
    await database.open()
    await database.register_store(store_id, epoch, partitions)
    newer = await database.write_states(states)

A method is one SQL transaction, and durable when it returns. Whatever goes wrong is a DatabaseError: one that may pass
(DatabaseUnreachable), or one that will not (DatabaseRefused). The queries are files in `sql/`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from datp.archive import migrate
from datp.archive.drivers import Connection, Driver, Upsert, driver_for
from datp.archive.drivers.guarded import GuardedDriver
from datp.archive.logbook import LogEntry, LogLevel, entry_of, row_of
from datp.archive.queries import Query, queries
from datp.archive.record import COLUMNS, ArchivedState, Row, from_row
from datp.archive.search import ArchivedBrief, Place, SearchFilter, brief_of
from datp.errors import DatabaseRefused, RowsRefused
from datp.hotstore.store import Listed, Result
from datp.model.status import FINAL, Status
from datp.settings import VALUE_MAX, Settings

PIPELINES: Final = "pipelines"
NODE_GROUPS: Final = "node_groups"

STARTED_AT: Final = ArchivedBrief.__struct_fields__.index("started_at")

FIRST: Final = ""
"""Where paging begins: before every txId."""


ENCODED_AT_ONCE: Final = 50
"""States; half a millisecond, so that who shares the event loop isn't held up by a whole batch."""


async def encode(states: Sequence[ArchivedState]) -> None:
    """These have their rows. Whoever has time does it, while others are being written."""
    new = [state for state in states if not state.is_encoded]
    for place, state in enumerate(new, 1):
        _ = state.row
        if place % ENCODED_AT_ONCE == 0:
            await asyncio.sleep(0)


class RolledUp(NamedTuple):
    """How many transactions ended so on a day."""

    day: str
    owner: str
    type: str
    status: str
    transactions: int


class KnownStore(NamedTuple):
    """The store that a database is the archive of."""

    store_id: str
    epoch: int
    partitions: int


class Saved(NamedTuple):
    """A change of definitions that was made: its number, and a result for each item."""

    change: int
    results: list[Result]


def day_of(ms: int) -> str:
    """The day of a time, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


class Database:
    """A database, opened: its schema has been checked."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.settings = settings
        self.driver = GuardedDriver(driver_for(url, settings))
        self.store_id = ""
        self.epoch = 0
        """Of the store whose states are written; 0 until it is registered."""
        self.partitions = 0
        self._queries = queries(self.driver.dialect)

    async def open(self) -> None:
        """The schema is the one that we know; raises DatabaseError."""
        await migrate.check(self.driver)

    async def close(self) -> None:
        await self.driver.close()

    def reading(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for queries that change nothing; for what has a module of its own beside this one."""
        return self.driver.reading()

    def writing(self) -> AbstractAsyncContextManager[Connection]:
        """A connection in a transaction: committed at the end, taken back if anything raises."""
        return self.driver.writing()

    def query(self, name: str) -> Query:
        """The query of this name, as this database wants it."""
        return self._queries[name]

    async def ping(self) -> dict[str, Any]:
        """What the server says of itself: server, version, what makes a commit durable; and the schema's version."""
        async with self.driver.reading() as connection:
            (row,) = await connection.rows(self._queries["describe_server"])
        names = DESCRIBED[self.driver.dialect]
        applied = [one.version for one in await migrate.status(self.driver) if one.applied_at is not None]
        return {**dict(zip(names, row, strict=True)), "schema": max(applied, default=0)}

    async def now_ms(self) -> int:
        """The server's time."""
        async with self.driver.reading() as connection:
            ((now_ms,),) = await connection.rows(self._queries["server_time"])
        return int(now_ms)

    # ── which store ──────────────────────────────────────────────────────────────────────────────────────────

    async def register_store(self, store_id: str, epoch: int, partitions: int) -> None:
        """This store is archived here, and no other; raises DatabaseRefused if it is another, or was replaced."""
        await self._register(self.driver, store_id, epoch, partitions)

    def open_when_used(self, store_id: str, epoch: int, partitions: int) -> None:
        """It is away now: before it is first used, what `open` and `register_store` want must be so."""
        self.store_id, self.epoch, self.partitions = store_id, epoch, partitions

        async def check() -> None:
            await migrate.check(self.driver.within)
            await self._register(self.driver.within, store_id, epoch, partitions)

        self.driver.check_first(check)

    async def _register(self, driver: Driver, store_id: str, epoch: int, partitions: int) -> None:
        async with driver.writing() as connection:
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
        self.store_id, self.epoch, self.partitions = store_id, epoch, partitions

    async def known_store(self) -> KnownStore | None:
        """The store that is archived here, if one is."""
        async with self.driver.reading() as connection:
            rows = await connection.rows(self._queries["find_store"])
        return KnownStore(*rows[0]) if rows else None

    async def raise_epoch(self) -> int:
        """The store's next life begins: writes of its earlier ones are refused from now on; the new epoch."""
        async with self.driver.writing() as connection:
            await connection.run(self._queries["raise_epoch"])
            rows = await connection.rows(self._queries["lock_store"])
            if not rows:
                raise DatabaseRefused("No store is archived in this database, so there is none to be rebuilt from it")
            ((self.store_id, self.epoch, self.partitions),) = rows
        return self.epoch

    # ── states ───────────────────────────────────────────────────────────────────────────────────────────────

    async def write_states(self, states: Sequence[ArchivedState]) -> dict[str, int]:
        """SQL holds these states, or newer ones: for each that was not taken, the version that is held instead.

        The same version again changes nothing, and counts as taken. If some can't be stored by anybody, the others are
        stored in smaller transactions, and RowsRefused names those that are not.
        """
        # In one order, whoever writes: so two of us may wait for one another's row, but not each for the other's.
        await encode(states)
        rows = sorted((state.row for state in states), key=lambda row: row[0])
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
            self._check_life(await connection.rows(self._queries["lock_store"]))
            changed = await connection.run(
                self._queries["raise_version"], tx_id=tx_id, from_version=from_version, to_version=to_version
            )
        return changed == 1

    # ── pages for the reconciler and the rebuild ─────────────────────────────────────────────────────────────

    async def live_versions(self, after: str = FIRST, count: int = 500) -> list[tuple[str, int]]:
        """txId and version of the next of those that are not final; fewer than `count`: there are no more."""
        async with self.driver.reading() as connection:
            rows = await connection.rows(self._queries["live_versions"], after=after, count=count)
        return [(row[0], row[1]) for row in rows]

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

    # ── search ───────────────────────────────────────────────────────────────────────────────────────────────

    async def search(self, wanted: SearchFilter, after: Place | None = None, count: int = 100) -> list[ArchivedBrief]:
        """The next of the transactions that are meant, the newest first; fewer than `count`: there are no more."""
        until_ms = VALUE_MAX if wanted.until_ms is None else wanted.until_ms
        values: dict[str, Any] = {"from_ms": wanted.from_ms, "count": count, "before_ms": until_ms, "before_id": FIRST}
        if after is not None and after.started_at < until_ms:
            values.update(before_ms=after.started_at, before_id=after.tx_id)
        if wanted.parent or wanted.external_id:
            name = "search_parent" if wanted.parent else "search_external_id"
            values.update(owner=wanted.owner, type=wanted.type, status=wanted.status or "")
            values.update(parent=wanted.parent, external_id=wanted.external_id)
            async with self.driver.reading() as connection:
                rows = await connection.rows(self._queries[name], **values)
            return [brief_of(row) for row in rows]
        given = [part for part in ("owner", "type") if getattr(wanted, part)]
        query = self._queries["_".join(["search", *given])]
        values.update((part, getattr(wanted, part)) for part in given)
        rows = []
        async with self.driver.reading() as connection:
            # Each status is a range of an index, in the order that is wanted. All of them together are not.
            for status in [wanted.status] if wanted.status else Status:
                rows += await connection.rows(query, status=status.value, **values)
        newest = sorted(rows, key=lambda row: (row[STARTED_AT], row[0]), reverse=True)
        return [brief_of(row) for row in newest[:count]]

    # ── retention ────────────────────────────────────────────────────────────────────────────────────────────

    async def types(self) -> list[str]:
        """The types of which there are transactions."""
        found: list[str] = []
        async with self.driver.reading() as connection:
            while rows := await connection.rows(self._queries["next_type"], after=found[-1] if found else FIRST):
                found.append(rows[0][0])
        return found

    async def count_final(self, before_ms: int, type: str) -> int:
        """How many of a type ended before this, and may be deleted."""
        total = 0
        async with self.driver.reading() as connection:
            for status in sorted(FINAL):
                given = {"before_ms": before_ms, "type": type, "status": status.value}
                [(count,)] = await connection.rows(self._queries["count_expired"], **given)
                total += count
        return total

    async def delete_final(self, before_ms: int, type: str, count: int = 500) -> int:
        """Some of a type that ended before this are gone, with their branches and log, but stay counted; how many.

        Fewer than `count`: there are no more.
        """
        async with self.driver.writing() as connection:
            tx_ids: list[str] = []
            given: dict[str, Any] = {"before_ms": before_ms, "type": type}
            for status in sorted(FINAL):
                if len(tx_ids) < count:
                    given["count"] = count - len(tx_ids)
                    rows = await connection.rows(self._queries["expired"], status=status.value, **given)
                    tx_ids += [row[0] for row in rows]
            if not tx_ids:
                return 0
            generation = tx_ids
            while generation := [
                row[0] for row in await connection.rows(self._queries["branches"], tx_ids=sorted(generation))
            ]:
                tx_ids = tx_ids + generation
            tx_ids.sort()
            await connection.run(self._queries["delete_log"], tx_ids=tx_ids)
            # Told by whoever deletes them, so that two who do it at once don't count them twice.
            gone = await connection.rows(self._queries["delete_transactions"], tx_ids=tx_ids)
            counts = Counter(
                (day_of(ended_at), owner, of_type, status)
                for parent, owner, of_type, status, ended_at in gone
                if not parent
            )
            if counts:
                await connection.run_many(
                    self._queries["add_rollup"], [(*key, number) for key, number in sorted(counts.items())]
                )
        return counts.total()

    async def rollup(self, from_day: str, until_day: str) -> list[RolledUp]:
        """How many transactions that have been deleted ended on each of these days (both included, 2026-11-19)."""
        async with self.driver.reading() as connection:
            rows = await connection.rows(self._queries["read_rollup"], from_day=from_day, until_day=until_day)
        return [RolledUp(*row) for row in rows]

    # ── the logbook ──────────────────────────────────────────────────────────────────────────────────────────

    async def write_log(self, entries: Sequence[LogEntry]) -> None:
        """The entries are in the logbook, in this order."""
        if entries:
            async with self.driver.writing() as connection:
                await connection.run_many(self._queries["insert_log"], [row_of(entry) for entry in entries])

    async def read_log(
        self, tx_id: str, after: int = 0, count: int = 500, level: LogLevel = LogLevel.TRACE
    ) -> list[LogEntry]:
        """The next of what was said about a transaction, of this level or above; `after`: the last one's id."""
        given = {"tx_id": tx_id, "after": after, "count": count, "level": int(level)}
        async with self.driver.reading() as connection:
            rows = await connection.rows(self._queries["read_log"], **given)
        return [entry_of(row) for row in rows]

    # ── definitions, as the hot store's methods of these names ───────────────────────────────────────────────

    async def save_pipelines(self, items: Sequence[tuple[str, str, str, int]]) -> Saved:
        """pipeline, version, definition ('' when the version is there already), activate."""
        results = []
        async with self.driver.writing() as connection:
            change = await self._count_change(connection, PIPELINES)
            for name, version, definition, activate in items:
                is_new = 0
                if definition:
                    is_new = await connection.run(
                        self._queries["insert_pipeline_version"],
                        name=name,
                        version=version,
                        definition=definition,
                        created_at=time.time_ns() // 1_000_000,
                    )
                elif not await connection.rows(self._queries["find_pipeline_version"], name=name, version=version):
                    results.append(Result("NO_VERSION", (version.encode(),)))
                    continue
                query = self._queries["activate_pipeline" if activate else "insert_pipeline"]
                await connection.run(query, name=name, **({"version": version} if activate else {}))
                results.append(Result("OK", (is_new,)))
        return Saved(change, results)

    async def deactivate_pipelines(self, pipelines: Sequence[str]) -> Saved:
        """No version of these is active."""
        results = []
        async with self.driver.writing() as connection:
            change = await self._count_change(connection, PIPELINES)
            for name in pipelines:
                if await connection.rows(self._queries["find_pipeline"], name=name):
                    await connection.run(self._queries["deactivate_pipeline"], name=name)
                    results.append(Result("OK"))
                else:
                    results.append(Result("NO_PIPELINE", (b"",)))
        return Saved(change, results)

    async def delete_versions(self, items: Sequence[tuple[str, str]]) -> Saved:
        """pipeline, version."""
        results = []
        async with self.driver.writing() as connection:
            change = await self._count_change(connection, PIPELINES)
            for name, version in items:
                if await connection.run(self._queries["delete_pipeline_version"], name=name, version=version):
                    is_gone = await connection.run(self._queries["delete_pipeline"], name=name)
                    results.append(Result("OK", (is_gone,)))
                elif await connection.rows(self._queries["find_pipeline_version"], name=name, version=version):
                    results.append(Result("ACTIVE", (b"",)))
                else:
                    results.append(Result("NO_VERSION", (version.encode(),)))
        return Saved(change, results)

    async def load_pipelines(self, items: Sequence[tuple[str, str]]) -> list[Result]:
        """pipeline, version ('' for the active one)."""
        results = []
        async with self.driver.reading() as connection:
            for name, asked in items:
                version = asked
                if not version:
                    rows = await connection.rows(self._queries["find_pipeline"], name=name)
                    version = rows[0][0] if rows else ""
                if not version:
                    results.append(Result("NO_PIPELINE", (b"",)))
                    continue
                rows = await connection.rows(self._queries["find_pipeline_version"], name=name, version=version)
                if rows:
                    results.append(Result("OK", (version.encode(), rows[0][0].encode())))
                else:
                    results.append(Result("NO_VERSION", (version.encode(),)))
        return results

    async def save_node_groups(self, items: Sequence[tuple[str, str, int]]) -> Saved:
        """group, values, only_new."""
        results = []
        async with self.driver.writing() as connection:
            change = await self._count_change(connection, NODE_GROUPS)
            for name, values, only_new in items:
                query = self._queries["insert_node_group" if only_new else "save_node_group"]
                is_kept = not await connection.run(query, name=name, settings=values) and only_new
                results.append(Result("SAME" if is_kept else "OK"))
        return Saved(change, results)

    async def list_versions(self, after: tuple[str, str] = ("", ""), count: int = 500) -> list[tuple[str, str]]:
        """The next of all pipelines' versions: name, version; fewer than `count`: there are no more."""
        async with self.driver.reading() as connection:
            rows = await connection.rows(
                self._queries["list_pipeline_versions"], after_name=after[0], after_version=after[1], count=count
            )
        return [(row[0], row[1]) for row in rows]

    async def list_definitions(self, above: tuple[int, int] = (0, 0)) -> Listed:
        """Every pipeline and node group, at a change of their own, whose numbers are above these."""
        async with self.driver.writing() as connection:
            # Both rows are locked before anything is read: whoever publishes this has the latest word.
            for kind, number in zip((PIPELINES, NODE_GROUPS), above, strict=True):
                await connection.run(self._queries["raise_change"], kind=kind, number=number)
            changes = [await self._count_change(connection, kind) for kind in (PIPELINES, NODE_GROUPS)]
            pipelines = {row[0]: row[1].encode() for row in await connection.rows(self._queries["list_pipelines"])}
            groups = {row[0]: row[1].encode() for row in await connection.rows(self._queries["list_node_groups"])}
        return Listed(changes[0], changes[1], pipelines, groups, changes[0], changes[1])

    async def _count_change(self, connection: Connection, kind: str) -> int:
        """The number of the change that this transaction makes; nobody else makes one before it is committed."""
        await connection.run(self._queries["count_change"], kind=kind)
        ((number,),) = await connection.rows(self._queries["find_change"], kind=kind)
        return int(number)

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
        how = Upsert(self._queries["lock_store"], self._check_life, query, self._queries["held_versions"])
        held: dict[str, int] = dict(await self.driver.write_rows(rows, how))
        return {row[0]: held[row[0]] for row in rows if held[row[0]] != row[1]} if held else {}

    def _check_life(self, rows: list[tuple[Any, ...]]) -> None:
        """The store that is written for is the one that lock_store found, and stays so until the transaction ends."""
        assert self.epoch, "a store is registered before its states are written"
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
