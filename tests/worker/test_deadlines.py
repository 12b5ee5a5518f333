"""Deadlines and cancels: they hold wherever a transaction is, and the first of verdict and outcome wins."""

import asyncio
import threading
from typing import Any

import pytest
from worker.support import Engine, Held, entry_of, output_of, soon, until

from datp.errors import Conflict
from datp.hotstore.connection import RawCall
from datp.model.ids import TransactionId
from datp.steps import Context, RetryLater

# ── of a step ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_step_that_takes_too_long_is_stopped(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("slow", {"step": "test/held", "timeout": "100ms"})
    await eng.node()
    reply = await eng.run("slow")
    assert (reply.status, reply.note) == ("timeout", "the step took longer than 0.1 s")
    assert held.interrupted == 1
    assert held.runs[0].cancelled, "it could see it coming"


async def test_a_thread_that_takes_too_long_is_abandoned_and_its_slot_is_free(eng: Engine) -> None:
    may_end = threading.Event()
    ended = threading.Event()

    def slow(context: Context) -> str:
        may_end.wait(10)
        ended.set()
        return "too late"

    eng.step("test/slow", slow)
    await eng.pipeline("slow", {"step": "test/slow", "timeout": "100ms"})
    await eng.pipeline("quick", "util/echo")
    node = await eng.node(workers=1)
    tx_id = await eng.start("slow")
    try:
        assert (await eng.final(tx_id)).status == "timeout"
        assert (await eng.run("quick")).status == "success"
        assert node.slots.busy == 0
    finally:
        may_end.set()
    await asyncio.to_thread(ended.wait, 5)
    reply = await eng.transactions.reply(tx_id)
    assert (reply.status, output_of(reply)) == ("timeout", None), "what it came to is dropped"


async def test_a_retry_policy_takes_back_a_step_that_took_too_long(eng: Engine) -> None:
    async def slow_at_first(context: Context) -> int:
        if context.attempt == 1:
            await asyncio.Event().wait()
        return context.attempt

    eng.step("test/slow", slow_at_first)
    policy = {"attemptsMax": 2, "backoff": {"firstMs": 5}}
    await eng.pipeline("slow", {"step": "test/slow", "timeout": "80ms", "retry": policy})
    await eng.node()
    assert output_of(await eng.run("slow")) == 2


async def test_the_node_groups_time_out_holds_where_a_step_has_none(eng: Engine) -> None:
    eng.held()
    await eng.definitions.save_group("main", {"step_timeout_ms": 100})
    await eng.pipeline("slow", "test/held")
    await eng.node()
    assert (await eng.run("slow")).status == "timeout"


async def test_a_step_that_can_not_be_stopped_loses_its_lease_after_the_grace(eng: Engine) -> None:
    """The node can't take its slot back, but whatever the step does, the transaction is run elsewhere."""
    may_end = asyncio.Event()
    runs: list[int] = []

    async def stubborn(context: Context) -> str:
        runs.append(context.attempt)
        while context.attempt == 1 and not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        return f"from attempt {context.attempt}"

    eng.step("test/stubborn", stubborn)
    await eng.pipeline("stubborn", {"step": "test/stubborn", "timeout": "100ms"})
    node = await eng.node()
    tx_id = await eng.start("stubborn")
    assert output_of(await eng.final(tx_id)) == "from attempt 2"
    may_end.set()
    await soon(node.taker.empty.wait(), "its late outcome is answered")
    assert output_of(await eng.transactions.reply(tx_id)) == "from attempt 2"
    assert runs == [1, 2]


# ── of a transaction, in each phase ──────────────────────────────────────────────────────────────────────────────


class Phases:
    """Brings a transaction into a phase, with a deadline or without, with something to undo or without."""

    def __init__(self, eng: Engine, undoable: bool) -> None:
        self.eng = eng
        self.undone: list[str] = []
        self.first = ["test/undoable"] if undoable else ["util/echo"]
        self.held = eng.held()

        async def undo(context: Context) -> None:
            await asyncio.sleep(0.15)  # longer than the watchdog looks, so that it would be seen to interrupt
            self.undone.append(context.idempotency_key)

        async def do() -> None:
            pass

        async def sleeps() -> Any:
            return RetryLater(60_000)

        async def breaks() -> Any:
            return None

        eng.step("test/undoable", do, undo=undo)
        eng.step("test/sleeps", sleeps)
        eng.step("test/breaks", breaks)

    async def bring(self, phase: str, **more: Any) -> TransactionId:
        return await getattr(self, f"_{phase}")(**more)  # type: ignore[no-any-return]

    async def _started(self, *steps: Any, phase: str, **more: Any) -> TransactionId:
        await self.eng.pipeline("t", *self.first, *steps)
        await self.eng.node()
        tx_id = await self.eng.start("t", **more)
        await self.eng.phase(tx_id, phase)
        return tx_id

    async def _queued(self, **more: Any) -> TransactionId:
        """For a group without nodes."""
        await self.eng.pipeline("nobody", "util/echo", nodeGroup="fourth")
        await self.eng.pipeline("t", *self.first, {"pipeline": "nobody"})
        await self.eng.node()
        tx_id = await self.eng.start("t", **more)

        async def is_there() -> bool:
            return (await self.eng.transactions.show(tx_id)).node_group == "fourth"

        await until(is_there, "it is queued for a group without nodes")
        return tx_id

    async def _running(self, **more: Any) -> TransactionId:
        tx_id = await self._started("test/held", phase="running", **more)
        await self.held.began()
        return tx_id

    async def _sleeping(self, **more: Any) -> TransactionId:
        return await self._started("test/sleeps", phase="sleeping", **more)

    async def _waiting(self, **more: Any) -> TransactionId:
        return await self._started({"step": "util/wait", "with": {"switch": "go"}}, phase="waiting", **more)

    async def _joining(self, **more: Any) -> TransactionId:
        await self.eng.pipeline("branch", "test/sleeps")
        parallel = {"branches": [{"pipeline": "branch"}, {"pipeline": "branch"}]}
        return await self._started({"parallel": parallel}, phase="joining", **more)

    async def _exception(self, **more: Any) -> TransactionId:
        return await self._started("test/nobody-knows-it", phase="exception", **more)


PHASES = ["queued", "running", "sleeping", "waiting", "joining", "exception"]


@pytest.mark.parametrize("undoable", [False, True], ids=["nothing to undo", "something to undo"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_deadline_holds_wherever_the_transaction_is(eng: Engine, phase: str, undoable: bool) -> None:
    phases = Phases(eng, undoable)
    tx_id = await phases.bring(phase, deadline="800ms")
    reply = await eng.final(tx_id)
    if phase == "queued" and undoable:
        # Its group has no nodes; the verdict's undo runs where the step ran.
        assert eng.nodes[0].settings.node_group == "main"
    assert (reply.status, reply.note) == ("timeout", "the deadline passed")
    assert len(phases.undone) == undoable


@pytest.mark.parametrize("undoable", [False, True], ids=["nothing to undo", "something to undo"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_cancel_holds_wherever_the_transaction_is(eng: Engine, phase: str, undoable: bool) -> None:
    phases = Phases(eng, undoable)
    tx_id = await phases.bring(phase)
    result = await eng.transactions.cancel(tx_id, "changed my mind")
    assert result.code == ("ASKED" if phase in ("running", "joining") else "OK")
    reply = await eng.final(tx_id)
    assert (reply.status, reply.note) == ("cancelled", "changed my mind")
    assert len(phases.undone) == undoable
    with pytest.raises(Conflict, match="it has ended: cancelled"):
        await eng.transactions.cancel(tx_id)
    assert (await eng.transactions.reply(tx_id)) == reply, "a final status never changes"


async def test_a_start_that_nobody_takes_has_its_deadline_too(eng: Engine) -> None:
    await eng.pipeline("t", "util/echo", nodeGroup="fourth", deadline="100ms")
    await eng.node()
    reply = await eng.run("t")
    assert (reply.status, reply.note) == ("timeout", "the deadline passed")


async def test_a_start_may_have_a_deadline_of_its_own(eng: Engine) -> None:
    await eng.pipeline("t", "util/echo", nodeGroup="fourth", deadline="1h")
    await eng.node()
    assert (await eng.run("t", deadline="100ms")).status == "timeout"


async def test_a_deadline_that_is_kept_has_no_effect(eng: Engine) -> None:
    await eng.pipeline("t", {"step": "util/delay", "with": {"duration": "20ms"}}, deadline="300ms")
    await eng.node()
    tx_id = await eng.start("t")
    assert (await eng.final(tx_id)).status == "success"
    later = await eng.start("t")
    await eng.pipeline("long", {"step": "util/delay", "with": {"duration": "400ms"}})
    await eng.run("long")
    assert [await eng.transactions.reply(one) for one in (tx_id, later)] == [
        await eng.final(tx_id),
        await eng.final(later),
    ]
    assert (await eng.transactions.reply(tx_id)).status == "success"


# ── what runs when the verdict comes ─────────────────────────────────────────────────────────────────────────────


async def test_a_cancelled_step_is_stopped_before_the_store_fences_it(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("t", "test/held")
    await eng.node()
    tx_id = await eng.start("t")
    await held.began()
    await eng.transactions.cancel(tx_id, "enough")
    await held.stopped()
    assert (await eng.final(tx_id)).status == "cancelled"
    entry = entry_of(await eng.transactions.show(tx_id), "s1")
    assert (entry["completionStatus"], entry["note"]) == ("cancelled", "enough")


async def test_a_thread_is_abandoned_when_its_transaction_is_cancelled(eng: Engine) -> None:
    may_end, began = threading.Event(), threading.Event()

    def slow(context: Context) -> None:
        began.set()
        may_end.wait(10)

    eng.step("test/slow", slow)
    await eng.pipeline("t", "test/slow")
    await eng.node()
    tx_id = await eng.start("t")
    try:
        assert await asyncio.to_thread(began.wait, 5)
        await eng.transactions.cancel(tx_id)
        assert (await eng.final(tx_id)).status == "cancelled"
    finally:
        may_end.set()


async def test_a_node_that_does_not_hear_of_it_is_fenced_after_the_grace(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("t", "test/held")
    node = await eng.node()
    other = await eng.node(roles="wakeup")
    node.admin.given = lambda partition, events: None  # type: ignore[method-assign]
    node.taker._on_admin = node.admin.given
    tx_id = await eng.start("t")
    await held.began()
    assert (await eng.transactions.cancel(tx_id)).code == "ASKED"
    assert (await eng.final(tx_id)).status == "cancelled"
    assert other.failure is None
    held.let_go("too late")
    await soon(node.taker.empty.wait(), "its outcome was refused")
    assert (await eng.transactions.reply(tx_id)).status == "cancelled"


async def test_no_step_begins_after_the_verdict(eng: Engine) -> None:
    """The step that runs may end well, but what would follow it is not begun."""
    held, ran = eng.held(), []

    async def after() -> None:
        ran.append("after")

    eng.step("test/after", after)
    await eng.pipeline("t", "test/held", "test/after")
    node = await eng.node(cancel_grace_ms=5_000)
    tx_id = await eng.start("t")
    context = await held.began()
    await eng.transactions.cancel(tx_id)

    async def has_heard() -> bool:
        return context.cancelled

    await until(has_heard, "the step has heard of it")
    held.let_go("done")
    reply = await eng.final(tx_id)
    assert (reply.status, ran) == ("cancelled", [])
    entry = entry_of(await eng.transactions.show(tx_id), "s1")
    assert entry["completionStatus"] == "success", "what was done is told"
    assert node.failure is None


async def verdict_first(eng: Engine, held: Held, tx_id: TransactionId) -> None:
    """The verdict is stored; the step's outcome comes after it."""
    await held.began()
    assert (await eng.transactions.cancel(tx_id, "first")).code == "ASKED"
    held.let_go({"some": "output"})


async def test_a_verdict_that_comes_first_wins(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("t", "test/held")
    await eng.node()
    tx_id = await eng.start("t")
    await verdict_first(eng, held, tx_id)
    reply = await eng.final(tx_id)
    assert (reply.status, reply.note, output_of(reply)) == ("cancelled", "first", None)
    entry = entry_of(await eng.transactions.show(tx_id), "s1")
    assert entry["completionStatus"] == "success", "the loser is recorded in the flow"


async def test_an_outcome_that_lost_to_a_verdict_is_undone_with_its_output(eng: Engine) -> None:
    held_undo: list[Any] = []

    async def undo(context: Context, input: Any, output: Any) -> None:
        await asyncio.sleep(0.15)
        held_undo.append((context.idempotency_key, input, output))

    held = eng.held(undo=undo)
    await eng.pipeline("t", "test/held")
    await eng.node()
    tx_id = await eng.start("t", {"the": "input"})
    await verdict_first(eng, held, tx_id)
    assert (await eng.final(tx_id)).status == "cancelled"
    assert held_undo == [(f"s-{tx_id[3:]}.1:undo", {"the": "input"}, {"some": "output"})]
    shown = await eng.transactions.show(tx_id)
    assert [entry["completionStatus"] for entry in shown.flow] == ["cancelled", "success", "success"]


async def test_an_outcome_that_comes_first_wins(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("t", "test/held")
    await eng.node()
    tx_id = await eng.start("t")
    await held.began()
    held.let_go("well")
    reply = await eng.final(tx_id)
    with pytest.raises(Conflict, match="it has ended: success"):
        await eng.transactions.cancel(tx_id)
    assert await eng.transactions.reply(tx_id) == reply


@pytest.mark.parametrize("ends", ["sleep", "fork", "requeue", "park"])
async def test_whatever_a_step_ends_with_loses_to_a_verdict(eng: Engine, ends: str) -> None:
    """The outcome is on its way when the verdict is stored."""
    on_its_way, may_go = asyncio.Event(), asyncio.Event()
    await eng.pipeline("child", "util/echo", nodeGroup="other")
    last: dict[str, Any] = {
        "sleep": {"step": "util/delay", "with": {"duration": "1m"}},
        "fork": {"parallel": {"branches": [{"pipeline": "child"}]}},
        "requeue": {"pipeline": "child"},
        "park": {"step": "test/nobody-knows-it"},
    }
    await eng.pipeline("t", last[ends])
    node = await eng.node()
    execute = node.store.connection.execute

    async def held(calls: list[RawCall]) -> None:
        if any(call.script.contract.name == ends for call in calls):
            on_its_way.set()
            await may_go.wait()
        await execute(calls)

    node.store.connection.execute = held  # type: ignore[method-assign, assignment]
    tx_id = await eng.start("t")
    await soon(on_its_way.wait(), "the outcome is on its way")
    assert (await eng.transactions.cancel(tx_id, "first")).code == "ASKED"
    may_go.set()
    reply = await eng.final(tx_id)
    assert (reply.status, reply.note) == ("cancelled", "first")


async def test_a_second_verdict_changes_nothing(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("t", "test/held", deadline="10s")
    await eng.node()
    tx_id = await eng.start("t")
    await held.began()
    assert (await eng.transactions.cancel(tx_id, "first")).code == "ASKED"
    assert (await eng.transactions.cancel(tx_id, "second")).code == "ALREADY"
    assert (await eng.final(tx_id)).note == "first"


async def test_a_report_after_the_verdict_ends_the_step_with_it(eng: Engine) -> None:
    """Its work is done, though: it is recorded, and undone."""
    undone: list[str] = []
    may_report = asyncio.Event()
    began = asyncio.Event()

    async def undo(context: Context) -> None:
        undone.append(context.step_name)

    async def reports(context: Context) -> str:
        began.set()
        await may_report.wait()
        context.report_progress("done")
        return "done"

    eng.step("test/reports", reports, undo=undo)
    await eng.pipeline("t", "test/reports")
    await eng.node()
    tx_id = await eng.start("t")
    await soon(began.wait(), "it began")
    await eng.transactions.cancel(tx_id, "first")
    may_report.set()
    reply = await eng.final(tx_id)
    assert (reply.status, undone) == ("cancelled", ["s1"])
    assert reply.note == "first"


async def test_a_deadline_does_not_hold_once_undo_has_begun(eng: Engine) -> None:
    undoing, may_undo = asyncio.Event(), asyncio.Event()

    async def undo() -> None:
        undoing.set()
        await may_undo.wait()

    async def do() -> None:
        pass

    eng.step("test/do", do, undo=undo)
    await eng.pipeline("t", "test/do", {"step": "util/fixed-reply", "with": {"status": "failed"}}, deadline="500ms")
    await eng.node()
    tx_id = await eng.start("t")
    await soon(undoing.wait(), "undo has begun")
    shown = await eng.transactions.show(tx_id)
    assert (shown.reply.status, shown.reply.undoing) == ("running", True)
    with pytest.raises(Conflict, match="it undoes what was done"):
        await eng.transactions.cancel(tx_id)
    await eng.pipeline("later", {"step": "util/delay", "with": {"duration": "600ms"}})
    await eng.run("later")
    assert (await eng.transactions.show(tx_id)).phase == "running"
    may_undo.set()
    assert (await eng.final(tx_id)).status == "failed"
