"""Sweeping: expired leases go back to their queues, deadlines and verdicts are enforced. On every node."""

import asyncio
import contextlib
import logging

from datp.archive.restore import Restorer, Wanted
from datp.clock import Clock
from datp.errors import DatabaseUnreachable
from datp.hotstore.store import Happened, Reply, Store, Swept
from datp.service import Service
from datp.settings import Settings

log = logging.getLogger(__name__)

_SENTENCES = {
    "REQUEUED": "lost its lease (loss %s) and is queued again",
    "PARKED": "is on the exception list: it lost its lease %s times",
    "FENCED": "ran past the grace after its verdict (%s); it is taken from its node",
    "RAISED": "could not be swept: %s",
}


class Sweeper(Service):
    """Every `sweep_interval_ms`, or when something is due earlier."""

    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        super().__init__("sweeper")
        self.settings = settings
        self._store = store
        self._clock = clock
        self._awake = _Alarm(self)

    def wake(self) -> None:
        """Something may be due now: a branch has ended, and others are to be cancelled."""
        self._awake.ring()

    async def turn(self) -> None:
        want = self.settings.batch_size_max
        async with self._store.turn() as turn:
            replies = [turn.reap(partition, want) for partition in range(self._store.partitions)]
        swept = _answered(replies)
        for one in swept:
            for happened in one.happened:
                _tell(happened)
        _raise_first_error(replies)
        if any(len(one.happened) >= want for one in swept):
            return
        await self._awake.sleep(next_pause_s(swept, self.settings.sweep_interval_ms))


WAIT_FOR_SQL_S = 1.0
"""Claims run out after ten times that; and those in memory are woken late by this at the most."""


class Waker(Service):
    """Sleepers go back to their queues when their time comes. The role `wakeup`, on any number of nodes."""

    def __init__(self, store: Store, settings: Settings, restorer: Restorer | None = None) -> None:
        super().__init__("waker")
        self.settings = settings
        self._restorer = restorer
        self._store = store
        self._awake = _Alarm(self)
        self._bringing: asyncio.Task[None] | None = None
        self._is_sql_away = False

    def wake(self) -> None:
        self._awake.ring()

    async def stop(self) -> None:
        await super().stop()
        if self._bringing is not None:
            await asyncio.wait([self._bringing], timeout=self.settings.store_timeout_ms / 1000)
            self._bringing.cancel()
            await asyncio.gather(self._bringing, return_exceptions=True)

    def sleeper_added(self, wake_in_ms: int) -> None:
        """This node has just stored a sleeper; it may be due before the next look."""
        self._awake.ring_in(wake_in_ms / 1000)

    async def turn(self) -> None:
        want = self.settings.wake_batch
        async with self._store.turn() as turn:
            replies = [turn.wake_due(partition, want) for partition in range(self._store.partitions)]
        swept = _answered(replies)
        happened = [one for partition in swept for one in partition.happened]
        for one in happened:
            if one.what == "PARKED":
                log.error("%s was asleep, but there is no state; it is on the exception list", one.tx_id)
        await self._bring_back_beside([one.tx_id for one in happened if one.what == "EVICTED"])
        _raise_first_error(replies)
        if any(len(one.happened) >= want for one in swept):
            return
        await self._awake.sleep(next_pause_s(swept, self.settings.wake_interval_ms))

    async def _bring_back_beside(self, tx_ids: list[str]) -> None:
        """Those that had left memory will be back. A database that hangs must not hold up sleepers in memory."""
        if self._bringing is not None:
            await asyncio.wait([self._bringing], timeout=WAIT_FOR_SQL_S if tx_ids else 0)
            if not self._bringing.done():
                return  # their claims run out, and they are due again
            finished, self._bringing = self._bringing, None
            finished.result()
        if tx_ids:
            self._bringing = asyncio.create_task(self._bring_back(tx_ids), name="bringing back")

    async def _bring_back(self, tx_ids: list[str]) -> None:
        """They are back, and go on. If that fails, they are due again when their claim ends."""
        if self._restorer is None:
            log.error(
                "%d sleepers are due that have left memory, and this node has no archive to bring them back from:"
                " name one with DATP_DATABASE_URL, or take the role wakeup from it",
                len(tx_ids),
            )
            return
        try:
            await self._restorer.restore([Wanted(tx_id, "due") for tx_id in tx_ids])
            self._is_sql_away = False
        except DatabaseUnreachable as error:
            if not self._is_sql_away:
                log.warning("sleepers that have left memory can't be woken now: %s; trying again", error)
            self._is_sql_away = True


def _answered(replies: list[Reply[Swept]]) -> list[Swept]:
    """What came: a server of a cluster may be away, and what the others told is dealt with all the same."""
    return [reply.value for reply in replies if reply.error is None]


def _raise_first_error(replies: list[Reply[Swept]]) -> None:
    for reply in replies:
        if reply.error is not None:
            raise reply.error


def next_pause_s(swept: list[Swept], interval_ms: int) -> float:
    """Until the first thing is due, but not longer than the interval."""
    pauses = [one.next_due_ms - one.now_ms for one in swept if one.next_due_ms is not None]
    return max(1.0, min([interval_ms, *pauses])) / 1000


def _tell(happened: Happened) -> None:
    sentence = _SENTENCES.get(happened.what)
    if sentence:
        log.warning("%s " + sentence, happened.tx_id, happened.detail)


class _Alarm:
    """A pause that can be cut short, now or at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._rung = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._ends_at = float("inf")

    def ring(self) -> None:
        self._rung.set()

    def ring_in(self, seconds: float) -> None:
        """The pause that is, or is to come, ends at the latest then."""
        at = self._loop.time() + seconds
        if at < self._ends_at:
            self._ends_at = at
            self._loop.call_at(at, self._rung.set)

    async def sleep(self, seconds: float) -> None:
        self._ends_at = self._loop.time() + seconds
        if not self._service.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), seconds)
        self._rung.clear()
        self._ends_at = float("inf")
