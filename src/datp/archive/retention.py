"""Retention: transactions that ended long enough ago leave SQL, in small batches, and stay counted.

How long is said for each type by its pipeline (`retention`), and for all others by the setting `retention_days`;
without either, a transaction is kept for ever. What lives is never deleted, nor is what its client has not been told
of yet.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from datp.archive.database import Database
from datp.clock import Clock
from datp.service import Service
from datp.settings import Settings

log = logging.getLogger(__name__)

DAY_MS = 86_400_000

OwnRetention = Callable[[], Awaitable[Mapping[str, int]]]
"""The types that have a retention of their own, in ms."""


class Kept(NamedTuple):
    """How long the transactions of a type are kept."""

    type: str
    for_ms: int
    """0: for ever."""
    is_own: bool
    """Its pipeline says so; else the setting does."""

    def before_ms(self, now_ms: int) -> int:
        """What ended before this is old enough."""
        return now_ms - self.for_ms


async def kept_types(database: Database, own: Mapping[str, int], settings: Settings) -> list[Kept]:
    """How long each type of which there are transactions is kept."""
    types = await database.types()
    return [Kept(name, own.get(name) or settings.retention_days * DAY_MS, bool(own.get(name))) for name in types]


class Retention(Service):
    """Deletes what is old enough; on several nodes, each deletes some, and nothing is counted twice."""

    def __init__(self, database: Database, own: OwnRetention, settings: Settings, clock: Clock) -> None:
        super().__init__("retention")
        self.settings = settings
        self._database = database
        self._own = own
        self._clock = clock

    async def turn(self) -> None:
        """Everything that is old enough now is gone; then nothing for a while."""
        deleted = await self.delete()
        if deleted:
            log.info("retention: %s are gone", ", ".join(f"{count} {name}" for name, count in sorted(deleted.items())))
        await self.pause(self.settings.retention_interval_ms / 1000)

    async def delete(self) -> dict[str, int]:
        """What is old enough is gone; how many of each type. It stops between two batches when the node does."""
        deleted = Counter[str]()
        for kept in await kept_types(self._database, await self._own(), self.settings):
            is_more = kept.for_ms > 0
            while is_more and not self.stopping.is_set():
                before_ms = kept.before_ms(self._clock.now_ms())
                count = await self._database.delete_final(before_ms, kept.type, self.settings.retention_batch)
                deleted[kept.type] += count
                is_more = count >= self.settings.retention_batch
                if is_more:
                    # So that what is being archived gets its turn.
                    await self.pause(self.settings.retention_pause_ms / 1000)
        return {name: count for name, count in deleted.items() if count}
