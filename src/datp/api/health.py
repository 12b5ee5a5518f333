"""Whether this process is alive, and whether it can work, for whatever starts and restarts it."""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from datp.errors import StoreError
from datp.hotstore.store import Store

ANSWER_TIMEOUT_S: Final = 2.0
"""A store that is silent for longer is none to take work from; and few probes wait for longer."""


class Watched(Protocol):
    """What is asked of a node."""

    node_id: str
    ready: asyncio.Event
    ended: asyncio.Event
    failure: BaseException | None
    store: Store


class Health:
    """What stands in the way of this process's work, in a sentence."""

    def __init__(self, nodes: Sequence[Watched]) -> None:
        self.stopping = False
        self._nodes = nodes

    async def trouble(self) -> str:
        """Why this process is not ready; '' when it is."""
        if self.stopping:
            return "this process is stopping"
        for node in self._nodes:
            if node.failure is not None:
                return f"node {node.node_id} can't go on: {node.failure}"
            if not node.ready.is_set() or node.ended.is_set():
                return f"node {node.node_id} {'has ended' if node.ended.is_set() else 'starts'}"
        return await self._trouble_of_store()

    async def _trouble_of_store(self) -> str:
        """Nodes of one process share a store, so one question is enough."""
        for node in self._nodes[:1]:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S), node.store.turn() as turn:
                    reply = turn.list_definitions(whole=False)
                _ = reply.value
            except TimeoutError:
                return f"the store has not answered within {ANSWER_TIMEOUT_S:g} s"
            except StoreError as error:
                return str(error)
        return ""
