"""Worker slots: tasks that run what was taken, one transaction each at a time.

There is no task per transaction. A slot runs one after the other, as long as their steps don't wait; only when one
does, the next slot goes on with the rest. So a batch of quick steps costs one task switch, and slow ones still run
side by side.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from datp.clock import Clock
from datp.worker.run import Run

log = logging.getLogger(__name__)

YIELD_AFTER_S: Final = 0.005
"""A slot that ran so long without waiting lets the rest of the loop have its turn."""


class Slots:
    """What a node may run at once, and what waits for a slot."""

    def __init__(self, count: int, work: Callable[[Run], Awaitable[None]], clock: Clock) -> None:
        self.waiting: deque[Run] = deque()
        self.count = count
        self.busy = 0
        self.reserved = 0
        """Asked for, but not here yet: two turns must not take for the same slots."""
        self.quiet = asyncio.Event()
        """Set while no slot runs anything."""
        self.quiet.set()
        self._work = work
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._relay_scheduled = False
        self._closed = False

    @property
    def free(self) -> int:
        """How many more may be taken."""
        return self.count - self.busy - self.reserved - len(self.waiting)

    def resize(self, count: int) -> None:
        """More slots at once; fewer as soon as those that are too many are done."""
        self.count = count
        self._relay()

    def add(self, runs: list[Run]) -> None:
        """These are run, in this order."""
        self.waiting.extend(runs)
        self._relay()

    def add_first(self, run: Run) -> None:
        """This is run before all that wait: it was in hand already."""
        self.waiting.appendleft(run)
        self._relay()

    async def close(self) -> None:
        """Every slot has ended; what they ran was interrupted before, or is cancelled now."""
        self._closed = True
        while self._idle:
            self._wake_one()
        for task in self._tasks:
            if not task.done():
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _relay(self) -> None:
        """Somebody takes what waits: an idle slot, or a new one while there are fewer than `count`."""
        self._relay_scheduled = False
        if not self.waiting or self._closed or self.busy >= max(self.count, 1):
            return
        if self._idle:
            self._wake_one()
        elif len(self._tasks) < max(self.count, 1):
            task = self._loop.create_task(self._slot(), name=f"slot-{len(self._tasks)}")
            self._tasks.add(task)
            task.add_done_callback(self._slot_ended)

    def _slot_ended(self, task: asyncio.Task[None]) -> None:
        """Of its own accord, or because a step cancelled the task that ran it: another goes on with what waits."""
        self._tasks.discard(task)
        self._relay()

    def _wake_one(self) -> None:
        future = self._idle.popleft()
        if not future.done():
            future.set_result(None)

    async def _slot(self) -> None:
        task = asyncio.current_task()
        while not self._closed:
            since = self._clock.monotonic()
            while self.waiting and self.busy < max(self.count, 1):
                run = self.waiting.popleft()
                self.busy += 1
                self.quiet.clear()
                if self.waiting and not self._relay_scheduled:
                    # Runs only when this slot waits for something: then another one goes on.
                    self._relay_scheduled = True
                    self._loop.call_soon(self._relay)
                run.task = task
                try:
                    await self._work(run)
                finally:
                    run.task = None
                    self.busy -= 1
                    if not self.busy:
                        self.quiet.set()
                if self._clock.monotonic() - since > YIELD_AFTER_S:
                    await asyncio.sleep(0)
                    since = self._clock.monotonic()
            if self._closed or len(self._tasks) > max(self.count, 1):
                return
            future: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(future)
            await future
