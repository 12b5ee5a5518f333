"""What steps said is written: by nodes with a database to SQL, by others to the store, from which archivers fetch it.

Nobody waits for it. A process keeps a bounded buffer, the store a bounded list; what finds no room in either is
dropped and counted. What an archiver has fetched and not yet written is lost if it dies.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from datp.archive.database import Database
from datp.archive.logbook import Logbook, LogEntry, decode_entry, encode_entry
from datp.errors import DatabaseError, DatabaseUnreachable, StoreError, StoreFull
from datp.hotstore.store import Store
from datp.service import Service
from datp.settings import Settings

log = logging.getLogger(__name__)

Write = Callable[[list[LogEntry]], Awaitable[int]]
"""Writes some, and tells how many of them found no room."""


def to_database(database: Database) -> Write:
    async def write(entries: list[LogEntry]) -> int:
        await database.write_log(entries)
        return 0

    return write


def to_store(store: Store, node_id: str) -> Write:
    """All that a node says goes to one partition: its own, as its record."""

    async def write(entries: list[LogEntry]) -> int:
        async with store.turn() as turn:
            reply = turn.push_log(store.home(node_id), [(encode_entry(entry),) for entry in entries])
        return len(entries) - reply.value

    return write


class LogWriter(Service):
    """Writes the logbook of this process, again and again."""

    def __init__(self, logbook: Logbook, write: Write, settings: Settings) -> None:
        super().__init__("logbook")
        self._logbook = logbook
        self._write = write
        self.settings = settings
        self._unwritten: list[LogEntry] = []
        self._told_of = 0

    async def turn(self) -> None:
        """What was said since the last turn is written; what can't be now is tried again."""
        await self.pause(self.settings.logbook_flush_ms / 1000)
        await self.flush()

    async def stop(self) -> None:
        """What was said is written, if that is possible now."""
        await super().stop()
        try:
            await asyncio.wait_for(self.flush(), self.settings.store_timeout_ms / 1000)
        except (StoreError, DatabaseError, TimeoutError) as error:
            log.warning("%d entries of the logbook are lost: %s", len(self._logbook) + len(self._unwritten), error)

    async def flush(self) -> None:
        """Everything that was said until now is written. Raises what may get better by itself."""
        while self._unwritten or len(self._logbook):
            self._unwritten = self._unwritten or self._logbook.take(self.settings.logbook_batch)
            try:
                self._logbook.dropped += await self._write(self._unwritten)
            except DatabaseUnreachable:
                raise
            except (StoreFull, DatabaseError) as error:
                # A logbook that can't be written is no reason to stop a node.
                self._logbook.dropped += len(self._unwritten)
                log.error("%d entries of the logbook can't be written: %s", len(self._unwritten), error)
            self._unwritten = []
        if self._logbook.dropped > self._told_of:
            log.warning("the logbook had no room for %d entries", self._logbook.dropped - self._told_of)
            self._told_of = self._logbook.dropped


class LogFetcher(Service):
    """Fetches what nodes without a database left in the store, and writes it to SQL; any number of archivers do."""

    def __init__(self, store: Store, database: Database, settings: Settings) -> None:
        super().__init__("logbook fetcher")
        self._store = store
        self._database = database
        self.settings = settings
        self._fetched: list[LogEntry] = []

    async def turn(self) -> None:
        """What stands in the store is in SQL."""
        batch = self.settings.logbook_batch
        if not self._fetched:
            async with self._store.turn() as turn:
                replies = [turn.take_log(partition, batch) for partition in range(self._store.partitions)]
            stored = [entry for reply in replies for entry in reply.value]
            self._fetched = [entry for one in stored if (entry := decode_entry(one)) is not None]
        is_more = len(self._fetched) >= batch
        try:
            await self._database.write_log(self._fetched)
        except DatabaseUnreachable:
            raise
        except DatabaseError as error:
            log.error("%d entries of the logbook can't be written: %s", len(self._fetched), error)
        self._fetched = []
        if not is_more:
            await self.pause(self.settings.logbook_flush_ms / 1000)

    async def stop(self) -> None:
        """What was fetched is written, if that is possible now."""
        await super().stop()
        try:
            await asyncio.wait_for(self._database.write_log(self._fetched), self.settings.store_timeout_ms / 1000)
        except (DatabaseError, TimeoutError) as error:
            log.warning("%d fetched entries of the logbook are lost: %s", len(self._fetched), error)
