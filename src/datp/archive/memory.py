"""The store's memory: as it fills, sleepers leave it sooner; before it is full, nothing new starts.

It also notices when a server was restarted, or another took its place: then writes may have been lost.
"""

import logging
from collections.abc import Callable

from datp.archive.events import OperatorEvents
from datp.hotstore.store import Store
from datp.model.operator_event import EventCode
from datp.service import Service
from datp.settings import Settings

log = logging.getLogger(__name__)

EVICT_SOONER_FROM = 0.6
EVICT_AT_ONCE_FROM = 0.85
FULL_FROM = 0.95
"""Shares of the budget. What is live needs room to end: an end is larger than a start."""

HOLDS_FOR_LOOKS = 5
"""What was told holds for so many looks, should nobody look any more."""


class MemoryWatch(Service):
    """A part of the role `archive`: looks at every server now and then, and tells its partitions."""

    def __init__(
        self, store: Store, settings: Settings, events: OperatorEvents, on_another_server: Callable[[], None]
    ) -> None:
        super().__init__("memory")
        self.settings = settings
        self._store = store
        self._events = events
        self._on_another_server = on_another_server
        self._known: dict[int, str] = {}
        """A server's first partition → its run id."""
        self._full: set[int] = set()
        """The servers that have no room, by their first partitions."""

    async def turn(self) -> None:
        for partitions in self._store.connection.partitions_by_server:
            await self._look(partitions)
        await self.pause(self.settings.memory_look_ms / 1000)

    async def _look(self, partitions: list[int]) -> None:
        first = partitions[0]
        run_id = (await self._store.connection.info("server", first))["run_id"]
        if self._known.setdefault(first, run_id) != run_id:
            self._known[first] = run_id
            self._on_another_server()
        said = await self._store.connection.info("memory", first)
        budget = self.settings.memory_budget_mb * 1_000_000 or int(said.get("maxmemory", 0))
        if not budget:
            return
        share = int(said["used_memory"]) / budget
        await self._tell_people(first, share)
        holds_for_ms = self.settings.memory_look_ms * HOLDS_FOR_LOOKS
        async with self._store.turn() as turn:
            for partition in partitions:
                turn.tell_memory(
                    partition,
                    evict_percent=evict_percent(share),
                    is_full=share >= FULL_FROM,
                    holds_for_ms=holds_for_ms,
                )

    async def _tell_people(self, first: int, share: float) -> None:
        """Of a server, by its first partition."""
        is_full, was_full = share >= FULL_FROM, first in self._full
        if is_full and not was_full:
            self._full.add(first)
            text = f"the store's memory budget is used up ({share:.0%}): nothing new starts"
            await self._events.raise_event(EventCode.MEMORY_FULL, f"the server of partition {first}", text)
        elif was_full and not is_full:
            self._full.remove(first)
            log.info("the store has memory again (%.0f %% of its budget is used)", share * 100)


def evict_percent(share: float) -> int:
    """How much of `evict_after_ms` sleepers stay in memory, when so much of the budget is used."""
    left = (EVICT_AT_ONCE_FROM - share) / (EVICT_AT_ONCE_FROM - EVICT_SOONER_FROM)
    return round(100 * min(1.0, max(0.0, left)))
