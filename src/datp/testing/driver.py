"""The engine, driven by hand: one process does everything, one thing after the other, and time passes when nothing else
is left to do.

It is the engine that nodes run - the scripts, `run_event`, the outcomes - without their loops: what is taken, run,
stored, woken and reaped, and when, is decided here. So three days of sleep are one call of a script, and the order in
which things happen is the same in every run.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from datp.api.transactions import Transactions
from datp.clock import HeldClock
from datp.definitions import Definitions
from datp.hotstore.store import Reply, Store, Swept, Turn
from datp.model.event import Event
from datp.model.ids import TransactionId
from datp.model.next_move import Park, Verdict
from datp.model.reply import iso
from datp.model.status import Status
from datp.settings import Settings
from datp.steps.context import Context
from datp.steps.registry import Registry
from datp.steps.tools import Tools
from datp.testing.credentials import GivenCredentials
from datp.testing.faults import Fault, Faults
from datp.testing.step_types import LabRegistry
from datp.worker.outgoing import Sent, add_outcomes, add_requests, answer_requests
from datp.worker.run import NEVER, Abandoned, Outbox, Run, verdict_in
from datp.worker.run_event import run_event
from datp.worker.run_step import Workbench, close_threads
from datp.worker.watchdog import interrupt

log = logging.getLogger(__name__)

NODE: Final = "lab"
WANT: Final = 100
RESENDS_MAX: Final = 10
"""Of one turn whose reply is lost, and lost again."""

STOP_WITHIN_S: Final = 2.0
"""How long a step that was interrupted may take to end."""


CANCEL_NOTE: Final = "cancelled by the test"


class GoesOn(AssertionError):
    """A transaction goes on and on: more happened than a test wants to wait for."""


class Driver:
    """Everything that happens in a store with a held clock."""

    def __init__(self, url: str, settings: Settings, step_types: Registry, *, patience_s: float, runs_max: int) -> None:
        self.settings = settings
        self.clock = HeldClock()
        self.faults = Faults()
        self.credentials = GivenCredentials()
        self.registry = LabRegistry(step_types, self.faults, self._happen)
        self.store = Store(url, settings, self.clock)
        self.definitions = Definitions(self.store)
        self.transactions = Transactions(self.store, self.definitions)
        self._patience_s = patience_s
        self._runs_max = runs_max
        self._benches: dict[str, Workbench] = {}
        self._turn = 0
        self._run: Run | None = None
        self._said = asyncio.Event()

    async def open(self) -> None:
        """The store is there, and empty but for who it is."""
        await self.store.open(create=True, held=True)
        self._outbox = Outbox(self._said.set)

    async def close(self) -> None:
        for bench in self._benches.values():
            close_threads(bench)
            await bench.tools.close()
        await self.store.close()

    # ── going on ─────────────────────────────────────────────────────────────────────────────────────────────

    async def settle(self) -> None:
        """Whatever can go on without time passing has."""
        ran = 0
        while await self._take_and_run() or await self._sweep():
            ran += 1
            if ran > self._runs_max:
                raise GoesOn(f"more than {self._runs_max} things happened without time passing; is there a loop?")

    async def advance(self, ms: int) -> None:
        """So much time has passed, and what was due in it has happened, each at its time."""
        until = self.clock.now_ms() + ms
        await self.settle()
        while await self._go_to_next(until):
            await self.settle()
        self.clock.advance(max(0, until - self.clock.now_ms()))
        await self.settle()

    async def finish(self, is_finished: Callable[[], Any]) -> None:
        """Time passes until it is finished, or nothing more is due."""
        ran = 0
        await self.settle()
        while not await is_finished() and await self._go_to_next(None):
            await self.settle()
            ran += 1
            if ran > self._runs_max:
                now = iso(self.clock.now_ms())
                raise GoesOn(f"it is not finished after {ran} things that were due; the held clock says {now}")

    async def has_ended(self, tx_id: TransactionId) -> bool:
        """Whether it has its final status."""
        return (await self.transactions.reply(tx_id)).completion_time is not None

    def forget_prepared(self) -> None:
        """Step types have changed."""
        for bench in self._benches.values():
            bench.forget_prepared()

    # ── taking and running ───────────────────────────────────────────────────────────────────────────────────

    async def _take_and_run(self) -> bool:
        """Whether something was queued; it has been run."""
        for group in self.definitions.groups():
            for partition in range(self.store.partitions):
                self._turn += 1
                taken = await self._dequeue(group, partition)
                for run in taken:
                    await self._run_whole(run, group)
                if taken:
                    return True
        return False

    async def _dequeue(self, group: str, partition: int) -> list[Run]:
        def ask(turn: Turn) -> list[Reply[Any]]:
            return [turn.dequeue(partition, group=group, node=NODE, lane="0", turn=self._turn, want=1, alone=True)]

        [reply] = await self._send(["dequeue"], ask)
        return [Run(taken, NEVER, self._outbox) for taken in reply.value.taken]

    async def _run_whole(self, run: Run, group: str) -> None:
        """The run has ended, and its outcome is stored; unless this was a crash, then nothing of it is."""
        while True:
            try:
                await self._run_guarded(run, self._bench(group))
            except Abandoned as why:
                log.info("%s: the run is gone: %s", run.tx_id, why)
                self.clock.advance(self.settings.lease_ms)  # which is what a crash costs
                return
            run.verdict = None

            def store(turn: Turn) -> Sent:
                return add_outcomes(turn, [run])

            [(_, reply)] = await self._send([_call_of(run)], store)
            [result] = reply.value
            if result.code != "VERDICT":
                return
            run.verdict = verdict_in(result)

    async def _run_guarded(self, run: Run, bench: Workbench) -> None:
        """`run_event`, while what its steps say to the store is sent; a step that hangs runs out of its time."""
        self._run = run
        task = asyncio.create_task(self._work(run, bench))
        run.task = task
        loop = asyncio.get_running_loop()
        patient_until = loop.time() + self._patience_s
        try:
            while not task.done():
                said = asyncio.create_task(self._said.wait())
                await asyncio.wait({task, said}, timeout=patient_until - loop.time(), return_when="FIRST_COMPLETED")
                said.cancel()
                self._said.clear()
                await self._say()
                if not task.done() and loop.time() >= patient_until:
                    self._interrupt(run, patient_until)
                    patient_until += STOP_WITHIN_S
        finally:
            run.task = self._run = None
        await task

    async def _work(self, run: Run, bench: Workbench) -> None:
        try:
            await run_event(run, bench)
        except Abandoned:
            raise
        except Exception as error:  # as a node does
            log.exception("%s can't be run", run.tx_id)
            run.move = Park(f"the engine failed to run it: {type(error).__name__}: {error}", Event("continue"))
            run.state = b""

    def _interrupt(self, run: Run, now_s: float) -> None:
        """A step that doesn't end within a test's patience has used up its time, as far as the test is concerned."""
        if run.interrupted or run.context is None:
            raise GoesOn(f"{run.tx_id}: a step that was interrupted doesn't end; it may swallow CancelledError")
        name = run.context.step_name
        log.warning("%s: step %s ran for %g s of real time; it is stopped", run.tx_id, name, self._patience_s)
        self._use_up_time(run)

    def _use_up_time(self, run: Run) -> None:
        if run.step_ends_at is not NEVER:
            self.clock.advance(max(0, round((run.step_ends_at - self.clock.monotonic()) * 1000)))
        assert run.context is not None
        run.context.ask_to_end()
        interrupt(run, "timeout")

    async def _say(self) -> None:
        """What running steps have said is in the store, and they know."""
        requests = list(self._outbox.requests)
        self._outbox.requests.clear()
        if requests:
            answer_requests(await self._send(["request"], lambda turn: add_requests(turn, requests)))

    async def _happen(self, fault: Fault, context: Context) -> None:
        """What a fault does to the step that it meets."""
        match fault.kind:
            case "raise":
                assert fault.error is not None
                raise fault.error
            case "crash-before" | "crash-after":
                raise Abandoned(f"{fault.kind.replace('-', ' ')} step {context.step_name}")
            case "time-out":
                assert self._run is not None
                self._use_up_time(self._run)
                await asyncio.sleep(self._patience_s)
            case "cancel":
                assert self._run is not None
                await self.transactions.cancel(context.tx_id, CANCEL_NOTE)
                # Its node is told at once, by an admin event; the store tells it when it has something to say.
                self._run.verdict = Verdict(Status.CANCELLED, CANCEL_NOTE)
                context.ask_to_end()

    def _bench(self, group: str) -> Workbench:
        bench = self._benches.get(group)
        if bench is None:
            bench = self._benches[group] = Workbench(
                settings=self.settings,
                clock=self.clock,
                definitions=self.definitions,
                registry=self.registry,
                node_group=group,
                node_id=NODE,
                tools=Tools(self.settings, self.credentials),
            )
            bench.chance = lambda: 0.5
        return bench

    async def _send(self, calls: list[str], fill: Callable[[Turn], Any]) -> Any:
        """The replies; what is lost on its way back is asked for again, with the very same calls."""
        for _ in range(RESENDS_MAX):
            turn = self.store.turn()
            replies = fill(turn)
            await turn.send()
            if not self.faults.loses_reply(calls):
                return replies
        raise GoesOn(f"the reply to {calls[0]} was lost {RESENDS_MAX} times in a row")

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _go_to_next(self, until_ms: int | None) -> bool:
        """The clock is where the next thing was due, and it has happened; False if there is none before that."""
        # A wait without a time-out is due at infinity.
        due = min((at for swept in await self._sweep_all() if (at := swept.next_due_ms) is not None), default=NEVER)
        if due == NEVER or (until_ms is not None and due > until_ms):
            return False
        self.clock.advance(max(0, round(due) - self.clock.now_ms()))
        await self._sweep()
        return True

    async def _sweep(self) -> bool:
        """Whether something was due, and happened."""
        return any(swept.happened for swept in await self._sweep_all())

    async def _sweep_all(self) -> Sequence[Swept]:
        async with self.store.turn() as turn:
            replies: list[Reply[Any]] = []
            for partition in range(self.store.partitions):
                # Nothing is in hand between two runs, so whatever is leased was a crash's.
                replies += [turn.wake_due(partition, WANT), turn.reap(partition, WANT, at_once=True)]
        return [reply.value for reply in replies]


def _call_of(run: Run) -> str:
    return type(run.move).__name__.lower()
