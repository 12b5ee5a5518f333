"""Lanes: each host has its own, with room for so many requests at once; who finds it full waits for nobody else.

A slow receiver fills its own lane, and nothing but that. A lane is narrow at first and grows with every answer, so many
slow ones don't take all there is before they are known. What finds no place in a lane goes back to the store, for as
long as the lane will need by what its requests took lately.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from datp.webhooks.delivery import Delivery

NARROW: Final = 8
"""Requests at once to a host of which nothing is known yet."""
UNKNOWN_MS: Final = 100.0
"""What a request to it is expected to take."""
BACK_MIN_MS: Final = 50
BACK_MAX_MS: Final = 60_000
WAITS_MAX_MS: Final = 1_000
"""What is expected to be reached sooner waits here, under its claim; and no longer."""
FORGOTTEN_S: Final = 60.0
"""How long a lane that nothing is in is remembered."""


class Lane:
    """Deliveries to one host."""

    __slots__ = ("moved_at", "room", "running", "sent_back", "took_ms", "waiting")

    def __init__(self, room: int, now: float) -> None:
        self.room = min(NARROW, room)
        self.running = 0
        self.waiting: deque[Delivery] = deque()
        self.sent_back = 0
        """How many found no place since the lane last had one."""
        self.took_ms = UNKNOWN_MS
        """What a request took lately, on the average."""
        self.moved_at = now
        """When one last left it, or entered it while it was empty."""

    def one_ms(self, now: float) -> float:
        """What a request may take: those of a lane that doesn't move take at least as long as it hasn't."""
        return max(self.took_ms, (now - self.moved_at) * 1000, 1.0)


class Lanes:
    """The lanes of a sender."""

    def __init__(self, start: Callable[[Delivery], None], now: Callable[[], float]) -> None:
        self._start = start
        self._now = now
        self._lanes: dict[str, Lane] = {}

    def enter(self, delivery: Delivery, room: int) -> int | None:
        """It is started, or waits for its lane; or there is no place, and this is when to come again, in ms."""
        now = self._now()
        host = host_of(delivery.url)
        lane = self._lanes.get(host)
        if lane is None:
            lane = self._lanes[host] = Lane(room, now)
        if lane.running < lane.room:
            if not lane.running:
                lane.moved_at = now
            lane.running += 1
            lane.sent_back = 0
            self._start(delivery)
            return None
        one_ms = lane.one_ms(now)
        if one_ms < WAITS_MAX_MS and len(lane.waiting) * one_ms / lane.room < WAITS_MAX_MS:
            lane.waiting.append(delivery)
            return None
        return _back_ms(lane, now)

    def leave(self, delivery: Delivery, took_ms: float, room: int, *, is_fine: bool) -> None:
        """It is done with; the next in its lane is started, and after a success there is more room, up to `room`."""
        lane = self._lanes[host_of(delivery.url)]
        lane.took_ms += 0.2 * (took_ms - lane.took_ms)
        lane.moved_at = self._now()
        lane.running -= 1
        lane.room = min(room, lane.room + 1) if is_fine else max(1, lane.room // 2)
        while lane.waiting and lane.running < lane.room:
            lane.running += 1
            self._start(lane.waiting.popleft())
        if not lane.waiting:
            lane.sent_back = 0

    def tidy(self) -> Iterator[tuple[Delivery, int]]:
        """Those that wait in a lane that doesn't move, and when to come again; lanes long empty are forgotten."""
        now = self._now()
        for host, lane in list(self._lanes.items()):
            if lane.waiting and (now - lane.moved_at) * 1000 >= WAITS_MAX_MS:
                waiting, lane.waiting = lane.waiting, deque()
                for delivery in waiting:
                    yield delivery, _back_ms(lane, now)
            elif not lane.running and now - lane.moved_at > FORGOTTEN_S:
                del self._lanes[host]

    def leave_all(self) -> Iterator[Delivery]:
        """Those that wait wait no longer."""
        for lane in self._lanes.values():
            while lane.waiting:
                yield lane.waiting.popleft()


def _back_ms(lane: Lane, now: float) -> int:
    lane.sent_back += 1
    before = len(lane.waiting) + lane.sent_back
    return round(min(BACK_MAX_MS, max(BACK_MIN_MS, lane.one_ms(now) * before / lane.room)))


@lru_cache(10_000)
def host_of(url: str) -> str:
    return urlsplit(url).netloc.lower()
