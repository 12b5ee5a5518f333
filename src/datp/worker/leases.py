"""Leases: what a node runs stays its own while it is alive, and not a moment longer than it can be sure of that.

Renewal comes from a thread of its own, so that a step that blocks the event loop for a while doesn't lose its
transaction; but a loop that stands still longer than `stall_max_ms` renews nothing, and neither does a step that is
past its time. Every renewal, even an empty one, tells each partition that somebody is there (decision 3).
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from datp.errors import StoreFull, StoreUnreachable
from datp.hotstore.store import Store
from datp.model.ids import partition_of
from datp.settings import Settings
from datp.worker.run import NEVER, Run

log = logging.getLogger(__name__)

RENEWALS_PER_LEASE: Final = 3


class Renewer:
    """The thread that renews. It has an event loop and a connection of its own."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        in_hand: dict[str, Run],
        *,
        on_lost: Callable[[list[str]], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.settings = settings
        self.ticked_at = time.monotonic()
        """When the node's event loop was last seen to move."""
        self._url = url
        self._in_hand = in_hand
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._main_loop = asyncio.get_running_loop()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def tick(self) -> None:
        """The event loop moves."""
        self.ticked_at = time.monotonic()

    async def stop(self) -> None:
        self._ending.set()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _run(self) -> None:
        asyncio.run(self._renew_until_the_end())

    async def _renew_until_the_end(self) -> None:
        """Renews. What it can't get over stops the node: without renewals every step would be run twice."""
        store = Store(self._url, self.settings)
        interval_s = self.settings.lease_ms / 1000 / RENEWALS_PER_LEASE
        try:
            while not self._ending.is_set():
                try:
                    if not store.partitions:
                        await store.open()
                    await self._renew(store)
                except (StoreUnreachable, StoreFull) as error:
                    log.warning("leases are not renewed: %s", error)
                    await asyncio.sleep(min(0.25, interval_s))
                    continue
                await asyncio.get_running_loop().run_in_executor(None, self._ending.wait, interval_s)
        except Exception as error:
            log.exception("leases can't be renewed any more: %s", error)
            self._main_loop.call_soon_threadsafe(self._on_failure, error)
        finally:
            await store.close()

    async def _renew(self, store: Store) -> None:
        """One round: every partition hears of the node, and of what it still runs."""
        now = time.monotonic()
        if now - self.ticked_at > self.settings.stall_max_ms / 1000:
            log.error("the event loop has stood still for %.1f s: leases are not renewed", now - self.ticked_at)
            return
        by_partition: list[list[Run]] = [[] for _ in range(store.partitions)]
        for run in list(self._in_hand.values()):
            if run.interrupted != "lease" and not _overdue(run, now, self.settings):
                by_partition[partition_of(run.tx_id)].append(run)
        async with store.turn() as turn:
            replies = [
                turn.renew_leases(partition, [(run.tx_id, run.token) for run in runs])
                for partition, runs in enumerate(by_partition)
            ]
        until = now + (self.settings.lease_ms - self.settings.lease_margin_ms) / 1000
        lost: list[str] = []
        for runs, reply in zip(by_partition, replies, strict=True):
            if reply.error is not None:
                continue  # a server of a cluster may be away: what the others hold is renewed all the same
            for run, result in zip(runs, reply.value, strict=True):
                if result.code == "OK":
                    run.leased_until = until
                else:
                    lost.append(run.token)
        if lost:
            self._main_loop.call_soon_threadsafe(self._on_lost, lost)
        for reply in replies:
            if reply.error is not None:
                raise reply.error


def _overdue(run: Run, now: float, settings: Settings) -> bool:
    """Its step is past its time and the grace: whatever it does, another node may have it."""
    return run.step_ends_at is not NEVER and now > run.step_ends_at + settings.cancel_grace_ms / 1000
