"""An engine in one process, for tests: a store, pipelines, nodes, and ways to wait for what happens."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import msgspec

from datp.api.transactions import Shown, StartRequest, Transactions
from datp.archive.archive import Archive
from datp.archive.database import Database
from datp.cli.roles import stations
from datp.definitions import Definitions
from datp.errors import StoreUnreachable
from datp.hotstore.connection import Connection, RawCall
from datp.hotstore.invariants import broken_invariants
from datp.hotstore.store import Found, Store
from datp.model.ids import TransactionId
from datp.model.pipeline import PipelineDefinition, parse_pipeline
from datp.model.reply import Reply
from datp.model.status import FINAL
from datp.settings import Settings
from datp.steps import Context, step
from datp.steps.contract import MARK
from datp.steps.registry import Registry, load_registry
from datp.worker.node import Node

T = TypeVar("T")

LOOK_S = 0.004
"""How often the store is looked at for what no event of this process tells."""


async def until(claim: Callable[[], Awaitable[T]], what: str, within_s: float = 10.0) -> T:
    """What the claim returns, once it is true."""
    ends_at = asyncio.get_running_loop().time() + within_s
    while not (found := await claim()):
        assert asyncio.get_running_loop().time() < ends_at, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(LOOK_S)
    return found


async def soon(waiting: Awaitable[T], what: str, within_s: float = 10.0) -> T:
    """What it comes to, which is a signal that the test waits for."""
    try:
        async with asyncio.timeout(within_s):
            return await waiting
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {what}") from None


class Held:
    """A step that a test holds: it says that it has begun, and ends when it is let go, as it is told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs: list[Context] = []
        self.outcome: Any = None
        """What it returns; a function is called with the context."""
        self.interrupted = 0
        self._go = asyncio.Event()
        self._moved = asyncio.Condition()

    async def began(self, times: int = 1) -> Context:
        """The context of its latest run, once there were so many."""
        async with self._moved:
            await soon(self._moved.wait_for(lambda: len(self.runs) >= times), f"{self.name} began {times} times")
        return self.runs[-1]

    async def stopped(self, times: int = 1) -> None:
        """So many of its runs were interrupted."""
        async with self._moved:
            await soon(self._moved.wait_for(lambda: self.interrupted >= times), f"{self.name} was interrupted")

    def let_go(self, outcome: Any = None) -> None:
        """Its runs end, those to come too."""
        self.outcome = outcome
        self._go.set()

    def hold(self) -> None:
        """Runs that begin from now on are held again."""
        self._go.clear()

    async def __call__(self, context: Context) -> Any:
        async with self._moved:
            self.runs.append(context)
            self._moved.notify_all()
        try:
            await self._go.wait()
        except asyncio.CancelledError:
            async with self._moved:
                self.interrupted += 1
                self._moved.notify_all()
            raise
        return self.outcome(context) if callable(self.outcome) else self.outcome


class Refused(NamedTuple):
    """A node's answer to an admin event that it could not follow."""

    why: str


class Engine:
    """Everything that a test of the whole needs."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(url, settings)
        self.archive = Archive(self.store, Database(settings.database_url, settings)) if settings.database_url else None
        self.definitions = Definitions(self.store, self.archive.database if self.archive else None)
        self.transactions = Transactions(self.store, self.definitions, self.archive)
        self.registry: Registry = load_registry("")
        self.nodes: list[Node] = []

    async def open(self, *groups: str) -> None:
        await self.store.open(create=True)
        if self.archive is not None:
            await self.archive.open()
        for group in groups:
            await self.definitions.save_group(group, {})

    async def close(self) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes))
        broken = await broken_invariants(self.store)
        if self.archive is not None:
            await self.archive.close()
        await self.store.close()
        assert not broken, broken

    # ── definitions ──────────────────────────────────────────────────────────────────────────────────────────

    def add_steps(self, *steps: Any) -> None:
        for marked in steps:
            self.registry.add(getattr(marked, MARK))

    def step(self, name: str, run: Callable[..., Any], **more: Any) -> None:
        """A step type of this test."""
        self.add_steps(step(name, **more)(run))

    def held(self, name: str = "test/held", **more: Any) -> Held:
        """A step type that this test holds."""
        held = Held(name)

        async def run(context: Context) -> Any:
            return await held(context)

        self.step(name, run, **more)
        return held

    def parsed(self, name: str, *steps: Any, **more: Any) -> PipelineDefinition:
        """A pipeline; a step may be just the name of a step type."""
        listed = [
            {"id": f"s{number}", "step": said} if isinstance(said, str) else {"id": f"s{number}", **said}
            for number, said in enumerate(steps, 1)
        ]
        return parse_pipeline({"name": name, "steps": listed, **more}, self.settings)

    async def pipeline(self, name: str, *steps: Any, **more: Any) -> PipelineDefinition:
        """Saves and activates a pipeline."""
        definition = self.parsed(name, *steps, **more)
        await self.definitions.save(definition, activate=True)
        await self.definitions.reload()
        return definition

    # ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────

    def with_settings(self, **settings: Any) -> Settings:
        return replace(self.settings, **settings)

    async def node(self, **settings: Any) -> Node:
        """A node of this process runs."""
        node = Node(self.with_settings(**settings), self.registry, url=self.store.url, stations=stations)
        await node.start()
        self.nodes.append(node)
        return node

    async def send(self, node_id: str, kind: str, args: dict[str, Any] | None = None, **more: Any) -> str:
        """An admin event is in the node's queue; its id."""
        event = {"id": f"e{random.getrandbits(48):x}", "kind": kind, "args": args or {}}
        event |= {"expiresAt": self.store.clock.now_ms() + 5_000, **more}
        async with self.store.turn() as turn:
            reply = turn.send_admin([(node_id, msgspec.json.encode(event).decode())])
        assert reply.value[0].code == "OK"
        return str(event["id"])

    async def answer(self, node_id: str, event_id: str) -> dict[str, Any] | None:
        """What the node has answered, if it has."""
        async with self.store.turn() as turn:
            reply = turn.read_answers(self.store.home(node_id), event_id)
        said = reply.value.get(node_id)
        return msgspec.json.decode(said) if said else None

    async def ask(self, node: Node, kind: str, args: dict[str, Any] | None = None) -> Any:
        """Sent, and answered; the answer, or what was refused."""
        event_id = await self.send(node.node_id, kind, args)
        said = await until(lambda: self.answer(node.node_id, event_id), f"{kind} is answered")
        assert said is not None
        assert (said["id"], said["kind"]) == (event_id, kind)
        return said["answer"] if said["ok"] else Refused(said["answer"])

    async def crash(self, node: Node) -> None:
        """The node is gone as if its process had been killed: it says nothing any more."""
        self.nodes.remove(node)
        node.renewer._ending.set()
        for service in node._services:
            service.stopping.set()  # wait_for may swallow a cancellation
        tasks = [node._watch, *(service._task for service in node._services), *node.taker._exchanges]
        for task in tasks:
            assert task is not None
            task.cancel()
        await asyncio.wait([task for task in tasks if task is not None])
        await node.slots.close()
        await node.renewer.stop()
        node.bench.threads.shutdown(wait=False, cancel_futures=True)
        await node._disconnect()

    # ── transactions ─────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, name: str, value: Any = None, **more: Any) -> TransactionId:
        return (await self.transactions.start("acme", StartRequest(name, input=value, **more))).tx_id

    async def start_many(self, name: str, inputs: Sequence[Any]) -> list[TransactionId]:
        """In this order."""
        ids: list[TransactionId] = []
        most = self.settings.starts_per_call_max
        for first in range(0, len(inputs), most):
            requests = [StartRequest(name, input=value) for value in inputs[first : first + most]]
            for started in await self.transactions.start_batch("acme", requests):
                assert not isinstance(started, Exception), started
                ids.append(started.tx_id)
        return ids

    async def final(self, tx_id: TransactionId, within_s: float = 10.0) -> Reply:
        async def ended() -> Reply | None:
            reply = await self.transactions.reply(tx_id)
            return reply if reply.status in FINAL else None

        found = await until(ended, f"{tx_id} is final", within_s)
        assert found is not None
        return found

    async def finals(self, ids: Sequence[TransactionId], within_s: float = 20.0) -> list[str]:
        """The final status of each."""
        ends_at = asyncio.get_running_loop().time() + within_s
        open_ids = list(ids)
        while open_ids:
            # The last one is looked at until it has ended; only then is it worth looking at all.
            await self.final(open_ids[-1], ends_at - asyncio.get_running_loop().time())
            statuses = await self.statuses(open_ids)
            open_ids = [tx_id for tx_id, status in zip(open_ids, statuses, strict=True) if not status]
        return await self.statuses(ids)

    async def statuses(self, ids: Sequence[TransactionId]) -> list[str]:
        """The final status of each; '' while it is live."""
        statuses: list[str] = []
        for first in range(0, len(ids), 1000):
            async with self.store.turn() as turn:
                reply = turn.get_state(ids[first : first + 1000])
            for found in reply.value:
                statuses.append(found.fields.get("status", b"").decode() if isinstance(found, Found) else "gone")
        return statuses

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

    async def completed(self, kind: str = "completed", status: str = "success") -> dict[str, int]:
        """Transaction type → how many of them completed so in the last hours, by the exact counts."""
        now_s = self.store.clock.now_ms() // 1000
        slots = [(3, now_s // 1000 * 1000 - back * 1000) for back in range(2)]
        async with self.store.turn() as turn:
            replies = [turn.read_counts(partition, slots) for partition in range(self.store.partitions)]
        counts: dict[str, int] = {}
        for reply in replies:
            for slot in reply.value:
                for name, number in slot.items():
                    what, counted, _, transaction_type, _ = [*name.split("|"), *[""] * 4][:5]
                    if (what, counted) == (kind, status):
                        counts[transaction_type] = counts.get(transaction_type, 0) + number
        return counts


def output_of(reply: Reply) -> Any:
    """The output that the client gets."""
    return msgspec.json.decode(reply.transaction_output)


def entry_of(shown: Shown, name: str) -> dict[str, Any]:
    """The latest entry of the flow with this name."""
    return [entry for entry in shown.flow if entry["name"] == name][-1]


def value_of(raw: Any) -> Any:
    """An input or output as the flow shows it."""
    return msgspec.json.decode(raw)


@contextlib.contextmanager
def lost_replies(connection: Connection, chance: random.Random, share: float) -> Any:
    """Calls are executed, and their replies are lost, at random."""
    execute = connection.execute

    async def lossy(calls: Sequence[RawCall]) -> None:
        await execute(calls)
        if chance.random() < share:
            for call in calls:
                call.reply = StoreUnreachable("the reply was lost, on purpose")

    connection.execute = lossy  # type: ignore[method-assign]
    try:
        yield
    finally:
        connection.execute = execute  # type: ignore[method-assign]


@contextlib.asynccontextmanager
async def engine(url: str, settings: Settings, *groups: str) -> AsyncIterator[Engine]:
    opened = Engine(url, settings)
    await opened.open(*(groups or ("main",)))
    try:
        yield opened
    finally:
        await opened.close()
