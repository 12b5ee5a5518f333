"""Who waits in this process, and for which transaction.

A waiter is registered first and looks then: whatever happens after that look, it is told. What tells it is a hint, so
it looks again before it answers; and should a hint be lost, a slow look at everything that is waited for covers it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from datp.errors import TooBusy, TooMany
from datp.hotstore.store import Found, Result
from datp.model.reply import Reply
from datp.model.status import FINAL
from datp.settings import Settings

FINAL_TEXTS: Final = frozenset(str(status) for status in FINAL)

Read = Callable[[], Awaitable[Reply]]


class Waiter:
    """One who waits: for the end, or for any change after the sequence that it has seen."""

    __slots__ = ("_future", "_is_woken", "since")

    def __init__(self, since: int | None) -> None:
        self.since = since
        self._future: asyncio.Future[None] | None = None
        self._is_woken = False

    def wants(self, is_final: bool, sequence: int) -> bool:
        """Whether this is what it waits for. A sequence below the one it has seen is: the store went back."""
        return is_final or (self.since is not None and sequence != self.since)

    def wake(self) -> None:
        """It looks again, now or when it would next fall asleep."""
        self._is_woken = True
        self._end_sleep()

    async def sleep(self, at_most_s: float) -> bool:
        """Until it is woken, or the time is out; at once if it was woken since it last slept. Whether it was."""
        if not self._is_woken:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_later(at_most_s, self._end_sleep)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        is_woken, self._is_woken = self._is_woken, False
        return is_woken

    def _end_sleep(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Waiting:
    """All who wait in this process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.count = 0
        self.is_closing = False
        self._by_id: dict[str, list[Waiter]] = {}
        self._by_owner: dict[str, int] = {}

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────

    async def until(
        self, tx_id: str, within_s: float, read: Read, *, since: int | None = None, owner: str = ""
    ) -> Reply:
        """The reply: final, or changed since that sequence; or as it is when the time is out or the process stops.

        Raises TooBusy, TooMany, and what reading raises.
        """
        if within_s <= 0:
            return await read()
        with self.registered(tx_id, since, owner) as waiter:
            ends_at = asyncio.get_running_loop().time() + within_s
            while True:
                reply = await read()
                left_s = ends_at - asyncio.get_running_loop().time()
                if waiter.wants(reply.status in FINAL, reply.sequence) or left_s <= 0 or self.is_closing:
                    return reply
                await waiter.sleep(left_s)

    @contextmanager
    def registered(self, tx_id: str, since: int | None, owner: str) -> Iterator[Waiter]:
        """A waiter, told of what happens from now on. Raises TooBusy, TooMany."""
        self.check_room(owner)
        waiter = Waiter(since)
        self._by_id.setdefault(tx_id, []).append(waiter)
        self._by_owner[owner] = self._by_owner.get(owner, 0) + 1
        self.count += 1
        try:
            yield waiter
        finally:
            self.count -= 1
            self._by_owner[owner] -= 1
            if not self._by_owner[owner]:
                del self._by_owner[owner]
            waiters = self._by_id[tx_id]
            waiters.remove(waiter)
            if not waiters:
                del self._by_id[tx_id]

    def check_room(self, owner: str) -> None:
        """One more may wait on this owner's account. Raises TooBusy, TooMany."""
        if self.count >= self.settings.longpolls_max:
            raise TooBusy(
                f"This process has longpolls_max ({self.settings.longpolls_max}) waiting already; try again, or ask"
                " without waiting",
                retry_after_s=1,
            )
        if self._by_owner.get(owner, 0) >= self.settings.longpolls_per_owner_max:
            raise TooMany(
                f"Owner {owner} has longpolls_per_owner_max ({self.settings.longpolls_per_owner_max}) waiting here"
                " already; try again, or ask without waiting",
                retry_after_s=1,
            )

    def close(self) -> None:
        """Everybody is answered with what there is, and nobody waits any more."""
        self.is_closing = True
        self.look_again()

    # ── hearing ──────────────────────────────────────────────────────────────────────────────────────────────

    def heard(self, notices: str) -> None:
        """What the store published: `<tx_id> <status> <sequence>` of each change, a line each."""
        by_id = self._by_id
        for notice in notices.split("\n"):
            tx_id, _, rest = notice.partition(" ")
            waiters = by_id.get(tx_id)
            if waiters is not None:
                status, _, sequence = rest.partition(" ")
                self._tell(waiters, status in FINAL_TEXTS, int(sequence))

    def look_again(self) -> None:
        """Everybody looks by itself: what was told lately isn't known."""
        for waiters in self._by_id.values():
            for waiter in waiters:
                waiter.wake()

    def waited_for(self) -> list[str]:
        """The transactions that somebody waits for."""
        return list(self._by_id)

    def found(self, tx_ids: Sequence[str], states: Sequence[Found | Result]) -> None:
        """What the slow look has found, whether or not it was told."""
        for tx_id, state in zip(tx_ids, states, strict=True):
            waiters = self._by_id.get(tx_id)
            if waiters is None:
                continue
            if isinstance(state, Found):
                is_final = state.fields.get("phase") == b"complete" and not state.fields.get("untold")
                self._tell(waiters, is_final, int(state.fields.get("sequence") or 0))
            elif state.code != "EVICTED":  # what has left memory doesn't change; what has left the store has ended
                for waiter in waiters:
                    waiter.wake()

    def _tell(self, waiters: Sequence[Waiter], is_final: bool, sequence: int) -> None:
        for waiter in waiters:
            if waiter.wants(is_final, sequence):
                waiter.wake()
