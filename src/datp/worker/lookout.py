"""The lookout: what a node sees to be wrong, beside its work, is told to operators."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from datp.archive.events import OperatorEvents
from datp.errors import DatabaseError, StoreError
from datp.hotstore.store import Store
from datp.model.operator_event import EventCode
from datp.service import Service
from datp.settings import Settings

log = logging.getLogger(__name__)

OWED: Final = {"webhooks": "webhooks", "archive": "to_archive"}
"""Roles that are missed only while there is work for them, and where it stands."""


class Lookout(Service):
    """Looks at the loops of its node, at the store's clock, and at the roles of all nodes that are alive."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        events: OperatorEvents,
        node_id: str,
        services: Callable[[], Sequence[Service]],
        wall_clock_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        super().__init__("lookout")
        self.settings = settings
        self._store = store
        self._events = events
        self._node_id = node_id
        self._services = services
        self._wall_clock_ms = wall_clock_ms
        self._told: dict[tuple[EventCode, str], float] = {}
        """What was told → when: trouble that lasts is told again only now and then."""
        self._missing: dict[str, float] = {}
        """Role → since when nobody has it."""

    async def turn(self) -> None:
        await self.pause(self.settings.watch_interval_ms / 1000)
        if self.stopping.is_set():
            return
        await self._look_at_services()
        async with self._store.turn() as turn:
            before_ms = self._wall_clock_ms()
            listed = [turn.list_nodes(partition) for partition in range(self._store.partitions)]
            counted = [turn.queue_stats(partition) for partition in range(self._store.partitions)]
        after_ms = self._wall_clock_ms()
        await self._look_at_clock(counted[0].value[0], before_ms, after_ms)
        nodes = {row[0]: row[1] for reply in listed for row in reply.value}
        places: dict[str, int] = {}
        for reply in counted:
            _, _, sizes = reply.value
            for place, size in zip(sizes[::2], sizes[1::2], strict=True):
                places[place.decode()] = places.get(place.decode(), 0) + size
        await self._look_for_roles(nodes, places)

    async def _look_at_services(self) -> None:
        """One word for each kind of trouble, whichever loop met it."""
        for service in self._services():
            error = service.trouble
            if isinstance(error, DatabaseError):
                await self._tell(EventCode.DATABASE_DOWN, "the archive's database", f"{service.name}: {error}")
            elif isinstance(error, StoreError):
                await self._tell(EventCode.STORE_DOWN, "the hot store", f"{service.name}: {error}")

    async def _look_at_clock(self, store_ms: int, before_ms: float, after_ms: float) -> None:
        """However long the answer took, the store said its time between these two."""
        off_ms = max(before_ms - store_ms, store_ms - after_ms)
        if off_ms > self.settings.clock_skew_max_ms:
            text = f"the clock of node {self._node_id}'s machine and the store's differ by {off_ms / 1000:.1f} s"
            await self._tell(EventCode.CLOCK_SKEW, f"node {self._node_id}", text)

    async def _look_for_roles(self, nodes: dict[str, bytes], places: dict[str, int]) -> None:
        """The first of the live nodes tells, so that it isn't told by each."""
        if not nodes or min(nodes) != self._node_id:
            self._missing.clear()
            return
        held = {role for record in nodes.values() for role in msgspec.json.decode(record).get("roles", [])}
        wanted = [role.strip() for role in self.settings.watched_roles.split(",") if role.strip()]
        now = time.monotonic()
        for role in wanted:
            needed = role not in OWED or places.get(OWED[role], 0) > 0
            if role in held or not needed or (role == "archive" and not self.settings.database_url):
                self._missing.pop(role, None)
            elif now - self._missing.setdefault(role, now) >= self.settings.node_gone_ms / 1000:
                text = f"no live node has the role {role}, so what it does waits; start one with: datp node --roles"
                await self._tell(EventCode.ROLE_MISSING, role, f"{text} {role}")

    async def _tell(self, code: EventCode, subject: str, text: str) -> None:
        now = time.monotonic()
        if now - self._told.get((code, subject), float("-inf")) >= self.settings.event_repeat_ms / 1000:
            self._told[code, subject] = now
            await self._events.raise_event(code, subject, text)
