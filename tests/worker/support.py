"""An engine in one process, for tests: a store, pipelines, nodes, and ways to wait for what happens."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from datp.api.transactions import Shown, StartRequest, Transactions
from datp.definitions import Definitions
from datp.hotstore.invariants import broken_invariants
from datp.hotstore.store import Store
from datp.model.ids import TransactionId
from datp.model.pipeline import parse_pipeline
from datp.model.reply import Reply
from datp.model.status import FINAL
from datp.settings import Settings
from datp.steps.contract import MARK
from datp.steps.registry import Registry, load_registry
from datp.worker.node import Node

T = TypeVar("T")


async def until(claim: Callable[[], Awaitable[T]], what: str, within_s: float = 10.0) -> T:
    """What the claim returns, once it is true."""
    async with contextlib.AsyncExitStack():
        ends_at = asyncio.get_running_loop().time() + within_s
        while not (found := await claim()):
            assert asyncio.get_running_loop().time() < ends_at, f"not within {within_s:g} s: {what}"
            await asyncio.sleep(0.005)
        return found


class Engine:
    """Everything that a test of the whole needs."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(url, settings)
        self.definitions = Definitions(self.store)
        self.transactions = Transactions(self.store, self.definitions)
        self.registry: Registry = load_registry("")
        self.nodes: list[Node] = []

    async def open(self, *groups: str) -> None:
        await self.store.open(create=True)
        for group in groups:
            await self.definitions.save_group(group, {})

    async def close(self) -> None:
        for node in self.nodes:
            await node.stop()
        broken = await broken_invariants(self.store)
        await self.store.close()
        assert not broken, broken

    def add_steps(self, *steps: Any) -> None:
        for marked in steps:
            self.registry.add(getattr(marked, MARK))

    async def pipeline(self, name: str, *steps: Any, **more: Any) -> None:
        """Saves and activates a pipeline; a step may be just the name of a step type."""
        listed = [{"id": f"s{n}", "step": s} if isinstance(s, str) else {"id": f"s{n}", **s} for n, s in enumerate(steps, 1)]
        await self.definitions.save(parse_pipeline({"name": name, "steps": listed, **more}, self.settings), activate=True)
        await self.definitions.reload()

    async def node(self, **settings: Any) -> Node:
        """A node of this process runs."""
        values = {**{name: getattr(self.settings, name) for name in self.settings.__dataclass_fields__}, **settings}
        node = Node(Settings(**values), self.registry, url=self.store.url)
        await node.start()
        self.nodes.append(node)
        return node

    async def start(self, name: str, value: Any = None, **more: Any) -> TransactionId:
        return (await self.transactions.start("acme", StartRequest(name, input=value, **more))).tx_id

    async def final(self, tx_id: TransactionId, within_s: float = 10.0) -> Reply:
        reply = await self.transactions.wait(tx_id, within_s)
        assert reply.status in FINAL, f"not final within {within_s:g} s: {reply}"
        return reply

    async def phase(self, tx_id: TransactionId, phase: str, within_s: float = 5.0) -> Shown:
        """The transaction, once it is in this phase."""

        async def there() -> Shown | None:
            shown = await self.transactions.show(tx_id)
            return shown if shown.phase == phase else None

        found = await until(there, f"{tx_id} is {phase}", within_s)
        assert found is not None
        return found

    async def run(self, name: str, value: Any = None, **more: Any) -> Reply:
        """Started, and final."""
        return await self.final(await self.start(name, value, **more))


@contextlib.asynccontextmanager
async def engine(url: str, settings: Settings, *groups: str) -> AsyncIterator[Engine]:
    opened = Engine(url, settings)
    await opened.open(*(groups or ("main",)))
    try:
        yield opened
    finally:
        await opened.close()
