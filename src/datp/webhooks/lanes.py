"""Lanes: each host has its own, with room for so many requests at once; who finds it full waits for nobody else.

A slow receiver fills its own lane, and nothing but that. What finds no place in a lane goes back to the store, for as
long as the lane will need by what its requests took lately: those of a quick host come again at once.
"""

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from datp.webhooks.delivery import Delivery

BACK_MIN_MS: Final = 50
BACK_MAX_MS: Final = 60_000
WAITS_MAX_MS: Final = 1_000
"""What is expected to be reached sooner waits here, under its claim."""


class Lane:
    """Deliveries to one host."""

    __slots__ = ("moved_at", "running", "sent_back", "took_ms", "waiting")

    def __init__(self, now: float) -> None:
        self.running = 0
        self.waiting: deque[Delivery] = deque()
        self.sent_back = 0
        """How many found no place since the lane last had room."""
        self.took_ms = 0.0
        """What a request took lately, on the average."""
        self.moved_at = now
        """When one last left it."""


class Lanes:
    """The lanes that anything is in."""

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
            lane = self._lanes[host] = Lane(now)
        if lane.running < room:
            lane.running += 1
            lane.sent_back = 0
            self._start(delivery)
            return None
        # One that doesn't move takes at least as long as it hasn't.
        one_ms = max(lane.took_ms, (now - lane.moved_at) * 1000, 1.0)
        if len(lane.waiting) * one_ms / room < WAITS_MAX_MS and len(lane.waiting) < 10 * room:
            lane.waiting.append(delivery)
            return None
        lane.sent_back += 1
        before = len(lane.waiting) + lane.sent_back
        return round(min(BACK_MAX_MS, max(BACK_MIN_MS, one_ms * before / room)))

    def leave(self, delivery: Delivery, took_ms: float) -> None:
        """It is done with; the next in its lane is started."""
        host = host_of(delivery.url)
        lane = self._lanes[host]
        lane.took_ms += 0.2 * (took_ms - lane.took_ms)
        lane.moved_at = self._now()
        if lane.waiting:
            self._start(lane.waiting.popleft())
            return
        lane.running -= 1
        lane.sent_back = 0
        if not lane.running:
            del self._lanes[host]


@lru_cache(10_000)
def host_of(url: str) -> str:
    return urlsplit(url).netloc.lower()
