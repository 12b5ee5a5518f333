"""How a process hears of changes: one subscription per server, and a slow look for what was not heard."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from datp.errors import StoreError
from datp.hotstore.connection import Notices
from datp.hotstore.store import Store
from datp.longpoll.waiting import Waiting
from datp.service import Service

LOOKED_AT_ONCE: Final = 200
"""Transactions of one call: it stays below a millisecond or two, and others get their turn."""


class Listener(Service):
    """What the store publishes reaches those who wait. `ready` when the first subscription is there."""

    def __init__(self, store: Store, waiting: Waiting) -> None:
        super().__init__("listener")
        self._store = store
        self._waiting = waiting
        self._notices: Notices | None = None

    async def turn(self) -> None:
        if self._notices is None:
            self._notices = await self._store.notices()
            self._waiting.look_again()  # what was published before is not known
            return
        try:
            heard = await self._notices.next()
        except StoreError:
            await self._unsubscribe()
            raise
        if heard is not None:
            self._waiting.heard(heard)

    async def stop(self) -> None:
        await super().stop()
        await self._unsubscribe()

    def wake(self) -> None:
        if self._notices is not None:
            self._notices.give_up()

    async def _unsubscribe(self) -> None:
        notices, self._notices = self._notices, None
        if notices is not None:
            await notices.close()


class SlowLook(Service):
    """Everything that is waited for is looked at now and then, so that a lost hint delays nobody for longer."""

    def __init__(self, store: Store, waiting: Waiting) -> None:
        super().__init__("slow look")
        self._store = store
        self._waiting = waiting

    async def turn(self) -> None:
        await self.pause(self._waiting.settings.longpoll_look_ms / 1000)
        tx_ids = self._waiting.waited_for()
        for start in range(0, len(tx_ids), LOOKED_AT_ONCE):
            if self.stopping.is_set():
                return
            some = tx_ids[start : start + LOOKED_AT_ONCE]
            async with self._store.turn() as turn:
                reply = turn.get_state(some)
            self._waiting.found(some, reply.value)


@contextlib.asynccontextmanager
async def listening(store: Store, waiting: Waiting) -> AsyncIterator[Waiting]:
    """Waiters are told, as long as this lasts; at its end they are answered with what there is."""
    services = [Listener(store, waiting), SlowLook(store, waiting)]
    for service in services:
        service.start()
    try:
        yield waiting
    finally:
        waiting.close()
        await asyncio.gather(*(service.stop() for service in services))
