"""The watchdog: steps end when their time is used up, and work stops when its lease can't be kept."""

import asyncio
from typing import Final

from datp.clock import Clock
from datp.service import Service
from datp.settings import Settings
from datp.worker.leases import Renewer
from datp.worker.run import Interruption, Run

LOOK_EVERY_S: Final = 0.05


class Watchdog(Service):
    """Looks at everything in hand, twenty times a second; so no step needs a timer of its own."""

    def __init__(self, in_hand: dict[str, Run], settings: Settings, clock: Clock, renewer: Renewer) -> None:
        super().__init__("watchdog")
        self.settings = settings
        self._in_hand = in_hand
        self._clock = clock
        self._renewer = renewer
        self._asked: dict[str, float] = {}
        """token → when a step that was asked to end is stopped."""

    async def turn(self) -> None:
        self._renewer.tick()
        now = self._clock.monotonic()
        for run in list(self._in_hand.values()):
            if now > run.leased_until:
                interrupt(run, "lease")
            elif now > run.step_ends_at:
                if run.context is not None:
                    run.context.ask_to_end()
                interrupt(run, "timeout")
            elif run.verdict is not None and now > self._asked.get(run.token, now):
                interrupt(run, "cancel")
        for token in [token for token in self._asked if token not in self._in_hand]:
            del self._asked[token]
        await self.pause(LOOK_EVERY_S)

    def ask_to_end(self, run: Run) -> None:
        """The step sees that it is cancelled; if it goes on, it is stopped before the store fences it."""
        if run.context is not None:
            run.context.ask_to_end()
        self._asked[run.token] = self._clock.monotonic() + self.settings.cancel_grace_ms / 1000 / 2


def interrupt(run: Run, why: Interruption) -> None:
    """The step that runs is cancelled; what that means is said in `interrupted`. Once is enough."""
    if run.interrupted:
        return
    run.interrupted = why
    if run.task is not None and run.context is not None:
        task: asyncio.Task[None] = run.task
        task.cancel()
