"""The one start / ready / stop contract that every loop follows."""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod

from datp.errors import DatabaseUnreachable, DatpError, StoreFull, StoreUnreachable
from datp.settings import Settings

log = logging.getLogger(__name__)


class Service(ABC):
    """A loop that runs beside others in a node.

    `start()` returns at once; `ready` is set when the loop has done its first turn; `stop()` returns when it has
    ended. Whatever a turn raises is logged and the loop goes on after a pause, except what can't get better by itself:
    that ends the loop, is kept in `failure`, and stops the node.
    """

    pause_after_trouble_s = 0.2

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self.stopping = asyncio.Event()
        self.failure: BaseException | None = None
        self.trouble: DatpError | None = None
        """Why its turns fail at present; it tries again."""
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def turn(self) -> None:
        """One round of work; it waits for its own reasons, and returns often."""

    def start(self) -> None:
        """The loop runs."""
        self._task = asyncio.create_task(self._run(), name=self.name)

    async def stop(self) -> None:
        """The loop has ended."""
        self.stopping.set()
        self.wake()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def ended(self) -> None:
        """Returns when the loop has ended, by itself or by stop()."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def wake(self) -> None:  # noqa: B027  # not abstract: most loops wait for time alone
        """Called when a turn that waits should look again; loops that wait for more than time override it."""

    async def pause(self, seconds: float) -> None:
        """Waits, but not longer than until stop()."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def _run(self) -> None:
        trouble = 0
        while not self.stopping.is_set():
            try:
                await self.turn()
                self.ready.set()
                trouble, self.trouble = 0, None
            except (StoreUnreachable, StoreFull, DatabaseUnreachable) as error:
                trouble, self.trouble = trouble + 1, error
                if trouble == 1:
                    log.warning("%s: %s; trying again", self.name, error)
                await self.pause(min(self.pause_after_trouble_s * trouble, 2.0))
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.failure = error
                log.exception("%s stops: %s", self.name, error)
                return


class RoleService(Service):
    """A loop of a role that a station brings; a change of what its node group shares replaces `settings`."""

    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__(name)
        self.settings = settings
