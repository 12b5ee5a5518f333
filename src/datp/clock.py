"""Where time comes from, so that tests and simulations can hold it.

The store's clock is the one that decides (decision 6). A node follows it: every reply of the store that carries
`now` moves the node's clock, and between replies the monotonic clock carries it on. What a node writes into the
flow (ts1, ts2, ts3) is therefore the store's time, even on a machine whose own clock is wrong.
"""

import time
from time import monotonic
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the store's clock."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; for durations inside one process."""
        ...

    def heard(self, store_now_ms: int) -> None:
        """The store has just said what time it is."""
        ...


class FollowingClock:
    """The store's time, carried on by the monotonic clock between two replies."""

    monotonic = staticmethod(monotonic)
    """Asked several times for every step, so there is no call of ours around it."""

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - monotonic() * 1000

    def now_ms(self) -> int:
        return int(monotonic() * 1000 + self._offset_ms)

    def heard(self, store_now_ms: int) -> None:
        self._offset_ms = store_now_ms - monotonic() * 1000


class HeldClock:
    """A clock that moves only when it is told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def heard(self, store_now_ms: int) -> None:
        """Nothing: a store under a held clock repeats what this clock told it."""

    def advance(self, ms: int) -> None:
        self._now_ms += ms
