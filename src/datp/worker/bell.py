"""An idle node listens for the bell; a busy one looks by itself now and then."""

import asyncio
import contextlib

from datp.hotstore.store import Store
from datp.service import Service
from datp.worker.taker import Taker


class Bell(Service):
    """Tells the taker when there may be something to take. The bell is a hint: a lost one costs `idle_look_ms`."""

    def __init__(self, store: Store, taker: Taker, names: list[str]) -> None:
        super().__init__("bell")
        self._store = store
        self._taker = taker
        self._names = names

    async def turn(self) -> None:
        settings = self._taker.settings
        # A wait that is longer than the store may be silent would be taken for a lost connection.
        look_s = min(settings.idle_look_ms, settings.store_timeout_ms / 2) / 1000
        if self._taker.hungry.is_set():
            rang = await self._store.hear_bell(self._names, look_s)
            if rang is not None:
                tag = rang[rang.index("{") : rang.index("}") + 1]
                self._taker.look(self._store.tags.index(tag))
                # The taker clears this once it has looked; until then the bell has been heard.
                self._taker.hungry.clear()
                return
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._taker.hungry.wait(), look_s)
        self._taker.wake()

    async def stop(self) -> None:
        """Ends at once: a wait for the bell is not worth waiting for."""
        self.stopping.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
