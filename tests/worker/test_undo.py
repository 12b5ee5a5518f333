"""Compensation: what was done is undone, newest first, where it was done, for those ends that ask for it."""

import asyncio
from typing import Any

import pytest
from worker.support import Engine, entry_of, output_of, soon, until

from datp.hotstore.connection import RawCall
from datp.steps import Aborted, Branch, Context, Failed, Parallel, RunPipeline


class Work:
    """A step type `test/do` that can be undone, and an account of what was done, where, and undone."""

    def __init__(self, eng: Engine) -> None:
        self.done: list[str] = []
        self.undone: list[tuple[str, str, str]] = []
        """Step, node group, key."""
        self.values: list[tuple[Any, Any]] = []
        self.raises = 0
        """How many undo runs to come fail."""

        async def undo(context: Context, input: Any, output: Any) -> None:
            if self.raises:
                self.raises -= 1
                raise ConnectionError("the bank is closed")
            self.undone.append((context.step_name, context.node_group, context.idempotency_key))
            self.values.append((input, output))

        async def do(context: Context, input: Any) -> Any:
            self.done.append(context.step_name)
            return {"by": context.step_name}

        async def ends(definition: dict[str, Any]) -> Any:
            match definition["how"]:
                case "failed":
                    return Failed({"why": "no stock"}, "no stock")
                case "aborted":
                    return Aborted({"why": "no stock"}, "no stock")
                case "internal-error":
                    raise ValueError("no stock")
                case _:
                    await asyncio.Event().wait()
            return None

        eng.step("test/do", do, undo=undo)
        eng.step("test/ends", ends)

    @property
    def order(self) -> list[str]:
        return [name for name, _, _ in self.undone]


def ends(how: str) -> dict[str, Any]:
    return {"id": "last", "step": "test/ends", "with": {"how": how}}


def do(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "step": "test/do", **more}


@pytest.mark.parametrize(
    ("how", "undone"), [("failed", ["b", "a"]), ("timeout", ["b", "a"]), ("aborted", []), ("internal-error", [])]
)
async def test_an_end_undoes_what_was_done_or_leaves_it(eng: Engine, how: str, undone: list[str]) -> None:
    work = Work(eng)
    await eng.pipeline("t", do("a"), "util/echo", do("b"), {**ends(how), "timeout": "80ms"})
    await eng.node()
    reply = await eng.run("t")
    assert (reply.status, work.done, work.order) == (how, ["a", "b"], undone)


async def test_a_success_undoes_nothing(eng: Engine) -> None:
    work = Work(eng)
    await eng.pipeline("t", do("a"), do("b"))
    await eng.node()
    assert (await eng.run("t")).status == "success"
    assert work.undone == []


async def test_an_undo_is_given_what_its_step_had_and_made(eng: Engine) -> None:
    work = Work(eng)
    await eng.pipeline("t", do("a"), do("b"), ends("failed"))
    await eng.node()
    tx_id = await eng.start("t", {"order": 7})
    reply = await eng.final(tx_id)
    assert work.values == [({"by": "a"}, {"by": "b"}), ({"order": 7}, {"by": "a"})]
    assert [key for _, _, key in work.undone] == [f"s-{tx_id[3:]}.2:undo", f"s-{tx_id[3:]}.1:undo"]
    assert (output_of(reply), reply.note) == ({"why": "no stock"}, "no stock"), "the end is told as it came about"


async def test_the_flow_tells_what_was_undone(eng: Engine) -> None:
    Work(eng)
    await eng.pipeline("t", do("a"), ends("failed"))
    await eng.node()
    tx_id = await eng.start("t")
    await eng.final(tx_id)
    shown = await eng.transactions.show(tx_id)
    undo = shown.flow[-1]
    assert (undo["name"], undo["undoOf"], undo["completionStatus"]) == ("a", 1, "success")
    assert undo["stepId"] == f"s-{tx_id[3:]}.1:undo"


async def test_a_definition_may_say_how_a_step_is_undone(eng: Engine) -> None:
    """Instead of what the step type says; with a definition of its own."""
    undone: list[Any] = []
    work = Work(eng)

    async def otherwise(context: Context, definition: Any, input: Any) -> None:
        undone.append((context.step_name, definition, input))

    eng.step("test/otherwise", otherwise)
    undo = {"step": "test/otherwise", "with": {"gently": True}}
    await eng.pipeline("t", do("a", undo=undo), {"id": "b", "step": "util/echo", "undo": undo}, ends("failed"))
    await eng.node()
    await eng.run("t", 5)
    assert undone == [("b", {"gently": True}, {"by": "a"}), ("a", {"gently": True}, 5)]
    assert work.undone == []


async def test_each_step_is_undone_on_the_group_where_it_ran(eng: Engine) -> None:
    work = Work(eng)
    await eng.pipeline("child", do("c1"), do("c2"), nodeGroup="other")
    await eng.pipeline("t", do("a"), {"pipeline": "child"}, do("b"), ends("failed"))
    await eng.node()
    await eng.node(node_group="other")
    reply = await eng.run("t")
    assert reply.status == "failed"
    assert [(name, group) for name, group, _ in work.undone] == [
        ("b", "main"),
        ("c2", "other"),
        ("c1", "other"),
        ("a", "main"),
    ]


async def test_what_a_failed_child_did_is_undone_with_its_callers(eng: Engine) -> None:
    work = Work(eng)
    await eng.pipeline("child", do("c1"), ends("failed"), nodeGroup="other")
    await eng.pipeline("t", do("a"), {"pipeline": "child"}, do("b"))
    await eng.node()
    await eng.node(node_group="other")
    assert (await eng.run("t")).status == "failed"
    assert work.order == ["c1", "a"]


async def test_finished_branches_are_undone_newest_first(eng: Engine) -> None:
    work = Work(eng)
    await eng.pipeline("left", do("l1"), do("l2"))
    await eng.pipeline("right", do("r1"), nodeGroup="other")
    branches = {"branches": [{"pipeline": "left"}, {"pipeline": "right"}]}
    await eng.pipeline("t", do("a"), {"parallel": branches}, do("b"), ends("failed"))
    await eng.node()
    await eng.node(node_group="other")
    tx_id = await eng.start("t")
    assert (await eng.final(tx_id)).status == "failed"
    assert work.order == ["b", "r1", "l2", "l1", "a"]
    assert {name: group for name, group, _ in work.undone}["r1"] == "other"
    keys = [key for _, _, key in work.undone]
    assert all(key.endswith(":undo") for key in keys)
    assert len(set(keys)) == 5


async def test_the_winners_are_undone_when_a_branch_fails(eng: Engine) -> None:
    """And what the failing branch did has been undone by itself."""
    work = Work(eng)
    failing = eng.held()
    await eng.pipeline("fine", do("f"))
    await eng.pipeline("bad", do("x"), "test/held")
    branches = {"branches": [{"pipeline": "fine"}, {"pipeline": "bad"}]}
    await eng.pipeline("t", do("a"), {"parallel": branches})
    await eng.node()
    tx_id = await eng.start("t")
    await failing.began()

    async def is_one_left() -> bool:
        return sorted((await eng.transactions.show(tx_id)).branches.values()) == ["open", "success"]

    await until(is_one_left, "the other branch has ended")
    failing.let_go(Failed(note="no"))
    assert (await eng.final(tx_id)).status == "failed"
    assert work.order == ["x", "f", "a"]


async def test_steps_of_pipelines_that_were_called_by_steps_are_undone_too(eng: Engine) -> None:
    work = Work(eng)

    async def calls() -> Any:
        return RunPipeline("child", 1)

    async def forks() -> Any:
        return Parallel([Branch("child", 2)])

    eng.step("test/calls", calls)
    eng.step("test/forks", forks)
    await eng.pipeline("child", do("c"))
    await eng.pipeline("t", "test/calls", "test/forks", ends("failed"))
    await eng.node()
    assert (await eng.run("t")).status == "failed"
    assert [value for value, _ in work.values] == [2, 1]


# ── an undo that fails ───────────────────────────────────────────────────────────────────────────────────────────


async def test_an_undo_that_fails_parks_and_a_retry_goes_on_there(eng: Engine) -> None:
    work = Work(eng)
    await eng.pipeline("t", do("a"), do("b"), do("c"), ends("failed"))
    await eng.node()
    work.raises = 2
    tx_id = await eng.start("t")
    shown = await eng.phase(tx_id, "exception")
    assert shown.parked["reason"] == ("the undo of step c ended internal-error: ConnectionError: the bank is closed")
    assert (shown.reply.status, shown.reply.undoing) == ("running", True)
    await eng.transactions.retry(tx_id)
    await until(lambda: _parked(eng, tx_id, work), "it is parked again")
    await eng.transactions.retry(tx_id)
    reply = await eng.final(tx_id)
    assert (reply.status, reply.note) == ("failed", "no stock")
    assert work.order == ["c", "b", "a"], "each once"


async def _parked(eng: Engine, tx_id: Any, work: Work) -> bool:
    return work.raises == 0 and (await eng.transactions.show(tx_id)).phase == "exception"


async def test_an_undo_has_its_steps_retry_policy(eng: Engine) -> None:
    work = Work(eng)
    work.raises = 2
    policy = {"attemptsMax": 3, "backoff": {"firstMs": 5}}
    await eng.pipeline("t", do("a", retry=policy), ends("failed"))
    await eng.node()
    assert (await eng.run("t")).status == "failed"
    assert work.order == ["a"]


async def test_an_undo_that_an_operator_gives_up_ends_as_he_says(eng: Engine) -> None:
    work = Work(eng)
    work.raises = 1
    await eng.pipeline("t", do("a"), ends("failed"))
    await eng.node()
    tx_id = await eng.start("t")
    await eng.phase(tx_id, "exception")
    await eng.transactions.end_parked(tx_id, "failed", "undone by hand")
    reply = await eng.final(tx_id)
    assert (reply.status, reply.note, work.order) == ("failed", "undone by hand", [])


async def test_undo_goes_on_after_a_crash_where_it_was(eng: Engine) -> None:
    undone: list[str] = []
    undoing = eng.held("test/undoing")

    async def do() -> None:
        pass

    async def undo_quickly(context: Context) -> None:
        undone.append(context.step_name)

    async def undo_slowly(context: Context) -> None:
        await undoing(context)
        undone.append(context.step_name)

    eng.step("test/slow", do, undo=undo_slowly)
    eng.step("test/quick", do, undo=undo_quickly)
    fails = {"id": "last", "step": "util/fixed-reply", "with": {"status": "failed", "note": "no"}}
    steps = ({"id": "a", "step": "test/slow"}, {"id": "b", "step": "test/quick"}, fails)
    await eng.pipeline("t", *steps)
    dying = await eng.node()
    tx_id = await eng.start("t")
    first = await undoing.began()
    await eng.crash(dying)
    await eng.node()
    second = await undoing.began(2)
    assert first.idempotency_key == second.idempotency_key == f"s-{tx_id[3:]}.1:undo"
    undoing.let_go()
    reply = await eng.final(tx_id)
    assert (reply.status, undone) == ("failed", ["b", "a"]), "what was undone stays undone"


async def test_an_undo_may_sleep(eng: Engine) -> None:
    from datp.steps import RetryLater

    runs: list[int] = []

    async def do() -> None:
        pass

    async def undo(context: Context) -> Any:
        runs.append(context.attempt)
        return RetryLater(20) if len(runs) < 3 else None

    eng.step("test/patient", do, undo=undo)
    await eng.pipeline("t", "test/patient", ends_with_failure())
    await eng.node()
    assert (await eng.run("t")).status == "failed"
    assert runs == [1, 2, 3]


def ends_with_failure() -> dict[str, Any]:
    return {"id": "last", "step": "util/fixed-reply", "with": {"status": "failed"}}


async def test_an_undo_starts_no_pipelines(eng: Engine) -> None:
    async def do() -> None:
        pass

    async def undo() -> Any:
        return RunPipeline("t")

    eng.step("test/odd", do, undo=undo)
    await eng.pipeline("t", "test/odd", ends_with_failure())
    await eng.node()
    shown = await eng.phase(await eng.start("t"), "exception")
    assert "an undo can't start pipelines" in shown.parked["reason"]


async def test_a_lost_lease_is_not_found_out_in_the_middle_of_an_undo(eng: Engine) -> None:
    """A node that hears, as undo begins, that it has lost its lease, leaves the undo to whoever has it now."""
    work = Work(eng)
    checkpointing, may_go = asyncio.Event(), asyncio.Event()
    await eng.pipeline("t", do("a"), ends("failed"))
    node = await eng.node()
    execute = node.store.connection.execute

    async def held(calls: list[RawCall]) -> None:
        if any(call.script.contract.name == "checkpoint" for call in calls) and not may_go.is_set():
            checkpointing.set()
            await may_go.wait()
        await execute(calls)

    node.store.connection.execute = held  # type: ignore[method-assign, assignment]
    tx_id = await eng.start("t")
    await soon(checkpointing.wait(), "undo is about to begin")
    [token] = node.taker.in_hand
    node._leases_lost([token])
    may_go.set()
    await soon(node.taker.empty.wait(), "the node lets go of it")
    assert work.undone == []
    assert (await eng.final(tx_id)).status == "failed"
    assert work.order == ["a"]
    assert len([e for e in (await eng.transactions.show(tx_id)).flow if "undoOf" in e]) == 1


async def test_a_cancel_undoes_in_the_right_places(eng: Engine) -> None:
    work = Work(eng)
    held = eng.held()
    await eng.pipeline("child", do("c"), {"id": "h", "step": "test/held"}, nodeGroup="other")
    await eng.pipeline("t", do("a"), {"pipeline": "child"})
    await eng.node()
    await eng.node(node_group="other")
    tx_id = await eng.start("t")
    await held.began()
    await eng.transactions.cancel(tx_id)
    assert (await eng.final(tx_id)).status == "cancelled"
    assert [(name, group) for name, group, _ in work.undone] == [("c", "other"), ("a", "main")]
    assert entry_of(await eng.transactions.show(tx_id), "h")["completionStatus"] == "cancelled"
