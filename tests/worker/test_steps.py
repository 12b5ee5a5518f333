"""The step contract: what a step is given, what it may end with, and that it completes exactly once."""

import asyncio
import logging
import sys
import threading
from typing import Any

import msgspec
import pytest
from worker.support import Engine, entry_of, output_of, value_of

from datp.steps import (
    Aborted,
    Branch,
    Context,
    Failed,
    Outcome,
    Parallel,
    RetryLater,
    RunPipeline,
    Success,
    WaitForSwitch,
)


class Order(msgspec.Struct):
    item: str
    count: int


class Price(msgspec.Struct):
    each: int
    currency: str = "EUR"


async def one(eng: Engine, run: Any, value: Any = None, **step: Any) -> Any:
    """A pipeline of this one step runs to its end; the reply."""
    eng.step("test/one", run)
    await eng.pipeline("one", {"step": "test/one", **step})
    await eng.node()
    return await eng.run("one", value)


# ── what it is given ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_values_are_given_as_the_types_that_the_step_names(eng: Engine) -> None:
    seen: list[Any] = []

    async def price(input: Order, definition: Price) -> dict[str, Any]:
        seen.extend((input, definition))
        return {"total": input.count * definition.each, "currency": definition.currency}

    reply = await one(eng, price, {"item": "pen", "count": 3}, **{"with": {"each": 2}})
    assert seen == [Order("pen", 3), Price(2)]
    assert output_of(reply) == {"total": 6, "currency": "EUR"}


async def test_a_step_may_ask_for_nothing(eng: Engine) -> None:
    async def nothing() -> int:
        return 7

    assert output_of(await one(eng, nothing, {"any": "thing"})) == 7


async def test_an_ordinary_function_runs_in_a_thread(eng: Engine) -> None:
    def where(input: Order) -> dict[str, Any]:
        return {"isMain": threading.current_thread() is threading.main_thread(), "item": input.item}

    reply = await one(eng, where, {"item": "pen", "count": 1})
    assert output_of(reply) == {"isMain": False, "item": "pen"}


async def test_a_class_is_a_step_too(eng: Engine) -> None:
    class Doubling:
        """Doubles."""

        async def run(self, input: int) -> int:
            return 2 * input

    assert output_of(await one(eng, Doubling, 21)) == 42


async def test_the_output_of_a_step_is_the_input_of_the_next(eng: Engine) -> None:
    async def more(input: int) -> int:
        return input + 1

    eng.step("test/more", more)
    await eng.pipeline("count", "test/more", "test/more", "test/more")
    await eng.node()
    assert output_of(await eng.run("count", 1)) == 4


async def test_an_input_of_another_type_fails_with_a_sentence(eng: Engine) -> None:
    async def price(input: Order) -> None:
        raise AssertionError("it must not run")

    reply = await one(eng, price, {"item": "pen", "count": "three"})
    assert reply.status == "failed"
    assert reply.note == "the input doesn't fit: Expected `int`, got `str` - at `$.count`"
    assert output_of(reply) == {"error": reply.note}


async def test_a_definition_of_another_type_is_an_internal_error(eng: Engine) -> None:
    async def price(definition: Price) -> None:
        raise AssertionError("it must not run")

    reply = await one(eng, price, **{"with": {"each": "two"}})
    assert reply.status == "internal-error"
    assert reply.note == "bad definition: step type test/one: Expected `int`, got `str` - at `$.each`"


# ── what it may end with ─────────────────────────────────────────────────────────────────────────────────────────


def success() -> Outcome:
    return Success({"a": 1}, "well done")


def failed() -> Outcome:
    return Failed({"a": 1}, "no stock")


def aborted() -> Outcome:
    return Aborted({"a": 1}, "not wanted")


@pytest.mark.parametrize(
    ("ends", "status", "note"),
    [(success, "success", "well done"), (failed, "failed", "no stock"), (aborted, "aborted", "not wanted")],
)
async def test_an_outcome_is_the_transactions_end(eng: Engine, ends: Any, status: str, note: str) -> None:
    async def run() -> Outcome:
        return ends()

    reply = await one(eng, run)
    assert (reply.status, reply.note, output_of(reply)) == (status, note, {"a": 1})


async def test_what_follows_a_step_that_did_not_succeed_does_not_run(eng: Engine) -> None:
    ran: list[str] = []

    async def fails() -> Outcome:
        return Failed(note="no")

    async def after() -> None:
        ran.append("after")

    eng.step("test/fails", fails)
    eng.step("test/after", after)
    await eng.pipeline("stops", "test/fails", "test/after")
    await eng.node()
    assert (await eng.run("stops")).status == "failed"
    assert ran == []


async def test_a_step_that_returns_nothing_passes_its_input_on(eng: Engine) -> None:
    """Which is also what a forgotten `return` does."""

    async def quiet(input: Any) -> None:
        input["changed"] = "only here"

    assert output_of(await one(eng, quiet, {"kept": True})) == {"kept": True}


async def test_a_success_without_an_output_has_none(eng: Engine) -> None:
    async def ends() -> Outcome:
        return Success()

    assert output_of(await one(eng, ends, {"kept": False})) is None


async def test_a_step_may_be_run_again_later(eng: Engine) -> None:
    async def thrice(context: Context) -> Any:
        return context.attempt if context.attempt == 3 else RetryLater(10, "not yet")

    reply = await one(eng, thrice)
    assert output_of(reply) == 3


async def test_a_step_that_sleeps_says_why_and_until_when(eng: Engine) -> None:
    async def sleeps() -> Outcome:
        return RetryLater(60_000, "the bank is closed")

    eng.step("test/sleeps", sleeps)
    await eng.pipeline("sleeps", "test/sleeps")
    await eng.node()
    tx_id = await eng.start("sleeps")
    shown = await eng.phase(tx_id, "sleeping")
    assert (shown.reply.status, shown.reply.note) == ("sleeping", "the bank is closed")
    assert shown.wake_time is not None
    assert 50_000 < shown.wake_time - eng.store.clock.now_ms() < 61_000


async def test_a_sleep_without_a_time_takes_the_back_off_of_the_step(eng: Engine) -> None:
    async def later(context: Context) -> Any:
        return context.attempt if context.attempt == 3 else RetryLater()

    reply = await one(eng, later, retry={"backoff": {"firstMs": 5, "factor": 1.0, "maxMs": 5}})
    assert output_of(reply) == 3


async def test_a_step_may_wait_for_a_switch(eng: Engine) -> None:
    async def waits(context: Context) -> Any:
        return context.switch("go") or WaitForSwitch("go", note="waits for go")

    eng.step("test/waits", waits)
    await eng.pipeline("waits", "test/waits")
    await eng.node()
    tx_id = await eng.start("waits")
    shown = await eng.phase(tx_id, "waiting")
    assert (shown.reply.status, shown.wake_switch, shown.wake_time) == ("waiting", "go", None)
    await eng.transactions.set_switch(tx_id, "go", "now")
    assert output_of(await eng.final(tx_id)) == "now"


async def test_a_wait_may_have_a_time_out(eng: Engine) -> None:
    async def waits(context: Context) -> Any:
        return context.woken_by or WaitForSwitch("go", 20)

    assert output_of(await one(eng, waits)) == "time"


async def test_a_step_may_go_on_with_a_pipeline(eng: Engine) -> None:
    async def calls(input: int) -> Outcome:
        return RunPipeline("child", input + 1)

    async def double(input: int) -> int:
        return 2 * input

    eng.step("test/calls", calls)
    eng.step("test/double", double)
    await eng.pipeline("child", "test/double", isTransactionType=False)
    await eng.pipeline("parent", "test/calls", "util/echo")
    await eng.node()
    tx_id = await eng.start("parent", 20)
    assert output_of(await eng.final(tx_id)) == 42
    shown = await eng.transactions.show(tx_id)
    child, caller = entry_of(shown, "child"), entry_of(shown, "s1")
    assert child["p"] == 1, "the child pipeline stands under the step that called it"
    assert value_of(child["input"]) == 21
    assert caller["completionStatus"] == "success"


@pytest.mark.parametrize(("ends", "status"), [(failed, "failed"), (aborted, "aborted")])
async def test_a_child_pipelines_end_is_its_callers(eng: Engine, ends: Any, status: str) -> None:
    async def run() -> Outcome:
        return ends()

    eng.step("test/ends", run)
    await eng.pipeline("child", "test/ends", nodeGroup="other")
    await eng.pipeline("parent", {"pipeline": "child"}, "util/echo")
    await eng.node()
    await eng.node(node_group="other")
    reply = await eng.run("parent")
    assert (reply.status, output_of(reply)) == (status, {"a": 1})


async def test_a_step_may_go_on_with_branches(eng: Engine) -> None:
    async def forks(input: list[int]) -> Outcome:
        return Parallel([Branch("double", number) for number in input])

    async def double(input: int) -> int:
        return 2 * input

    eng.step("test/double", double)
    await eng.pipeline("double", "test/double")
    reply = await one(eng, forks, [1, 2, 3])
    assert [branch["output"] for branch in output_of(reply)] == [2, 4, 6]


async def test_a_pipeline_that_calls_itself_ends_somewhere(eng: Engine) -> None:
    await eng.pipeline("abyss", {"pipeline": "abyss"})
    await eng.node()
    reply = await eng.run("abyss")
    assert reply.status == "failed"
    assert reply.note == f"pipelines are nested more than nesting_max ({eng.settings.nesting_max}) deep"


# ── what goes wrong in it ────────────────────────────────────────────────────────────────────────────────────────


def broken() -> None:
    raise ValueError("three is not a number")


class NotAnException(BaseException):
    """Something that `except Exception` doesn't catch."""


def broken_otherwise() -> None:
    raise NotAnException("as some libraries do")


def stopped_iterating() -> None:
    next(iter([]))


def unreadable() -> None:
    raise OSError("no file \udcff")


class Unprintable(Exception):
    """An exception that can't say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def unprintable() -> None:
    raise Unprintable


RAISING = {
    broken: "ValueError: three is not a number",
    broken_otherwise: "NotAnException: as some libraries do",
    stopped_iterating: "",
    sys.exit: "SystemExit: ",
    unreadable: "OSError: no file ?",
    unprintable: "Unprintable",
}


@pytest.mark.parametrize("raising", RAISING, ids=lambda raising: raising.__name__)
@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
async def test_whatever_a_step_raises_is_an_internal_error(
    eng: Engine, raising: Any, in_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A log with a lone surrogate can't be sent from one test process to another.
    monkeypatch.setattr(logging.getLogger("datp.step"), "propagate", False)

    async def run() -> None:
        raising()

    def run_in_thread() -> None:
        raising()

    reply = await one(eng, run_in_thread if in_thread else run)
    assert reply.status == "internal-error"
    assert reply.note is not None
    assert RAISING[raising] in reply.note


async def test_a_retry_policy_takes_back_what_is_raised(eng: Engine) -> None:
    attempts: list[int] = []

    async def flaky(context: Context) -> str:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise ConnectionError("the line is busy")
        return "done"

    policy = {"attemptsMax": 3, "backoff": {"firstMs": 5}}
    reply = await one(eng, flaky, retry=policy)
    assert (reply.status, output_of(reply), attempts) == ("success", "done", [1, 2, 3])


async def test_a_retry_policy_gives_up(eng: Engine) -> None:
    keys: list[str] = []

    async def broken(context: Context) -> None:
        keys.append(context.idempotency_key)
        raise ConnectionError(f"busy {context.attempt}")

    policy = {"attemptsMax": 4, "backoff": {"firstMs": 5, "factor": 1.0}}
    reply = await one(eng, broken, retry=policy)
    assert (reply.status, reply.note) == ("internal-error", "ConnectionError: busy 4")
    assert len(keys) == 4
    assert len(set(keys)) == 1, "the idempotency key is the same over reruns"


async def test_a_retry_policy_does_not_take_back_what_is_returned(eng: Engine) -> None:
    runs: list[int] = []

    async def declines() -> Outcome:
        runs.append(1)
        return Failed(note="declined")

    reply = await one(eng, declines, retry={"attemptsMax": 5, "backoff": {"firstMs": 5}})
    assert (reply.status, len(runs)) == ("failed", 1)


async def test_retries_belong_to_a_step_and_not_to_the_transaction(eng: Engine) -> None:
    attempts: list[tuple[str, int]] = []

    async def flaky(context: Context) -> None:
        attempts.append((context.step_name, context.attempt))
        if context.attempt < 2:
            raise ConnectionError("once")

    eng.step("test/flaky", flaky)
    policy = {"attemptsMax": 2, "backoff": {"firstMs": 5}}
    await eng.pipeline("two", {"step": "test/flaky", "retry": policy}, {"step": "test/flaky", "retry": policy})
    await eng.node()
    assert (await eng.run("two")).status == "success"
    assert attempts == [("s1", 1), ("s1", 2), ("s2", 1), ("s2", 2)]


class NotData:
    pass


BAD_OUTCOMES = {
    "an object": NotData(),
    "an outcome's class": Success,
    "bad text": "\ud800",
    "keys that are objects": {NotData(): 1},
    "too much": "x" * 300_000,
    "a negative pause": RetryLater(-1),
    "a pause in words": RetryLater("tomorrow"),  # type: ignore[arg-type]
    "a switch without a name": WaitForSwitch(""),
    "a switch that is a number": WaitForSwitch(3),  # type: ignore[arg-type]
    "no branches": Parallel([]),
    "a join of nothing": Parallel([Branch("bad")], "some"),
    "branches that are names": Parallel(["bad"]),  # type: ignore[list-item]
    "an input that is an object": RunPipeline("bad", NotData()),
    "too many branches": Parallel([Branch("bad")] * 101),
    "branches that are nothing": Parallel(None),  # type: ignore[arg-type]
}


WRONG_VALUES = {"too much", "a switch without a name", "a switch that is a number"}
"""What may come from the data as well as from the code."""


@pytest.mark.parametrize("what", BAD_OUTCOMES)
async def test_a_bad_outcome_ends_with_a_sentence(eng: Engine, what: str) -> None:
    async def bad() -> Any:
        return BAD_OUTCOMES[what]

    await eng.pipeline("bad", "util/echo")
    reply = await one(eng, bad)
    assert reply.status == ("failed" if what in WRONG_VALUES else "internal-error")
    assert reply.note


async def test_bad_text_in_a_note_hurts_nobody(eng: Engine) -> None:
    """Notes travel with others in one call; what can't be written must not get there."""

    async def sleeps(context: Context) -> Any:
        return None if context.woken_by else RetryLater(5, "\ud800" + "x" * 5_000)

    async def fails() -> Any:
        return Failed(note="\ud800")

    eng.step("test/sleeps", sleeps)
    eng.step("test/fails", fails)
    await eng.pipeline("sleeps", "test/sleeps")
    await eng.pipeline("fails", "test/fails")
    await eng.pipeline("plain", "util/echo")
    ids = [await eng.start(name) for name in ("plain", "sleeps", "fails", "plain")]
    await eng.node()
    assert await eng.finals(ids, 5) == ["success", "success", "failed", "success"]


async def test_a_long_note_is_cut(eng: Engine) -> None:
    async def sleeps() -> Any:
        return RetryLater(60_000, "x" * 5_000)

    eng.step("test/sleeps", sleeps)
    await eng.pipeline("sleeps", "test/sleeps")
    await eng.node()
    shown = await eng.phase(await eng.start("sleeps"), "sleeping")
    assert len(shown.reply.note or "") == eng.settings.note_length_max


# ── exactly once ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_step_that_cancels_itself_has_ended(eng: Engine) -> None:
    async def cancels() -> None:
        raise asyncio.CancelledError

    reply = await one(eng, cancels)
    assert (reply.status, reply.note) == ("internal-error", "the step cancelled itself")


async def test_a_step_that_ignores_its_interruption_does_not_harm_those_that_follow(eng: Engine) -> None:
    """The task that ran it runs others afterwards, and must not think that it is being cancelled."""
    children: list[str] = []

    async def stubborn(context: Context) -> str:
        while not context.cancelled:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                continue
        return "late"

    async def careful() -> Any:
        async def raises() -> None:
            raise ValueError("in a child task")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(raises())
                group.create_task(asyncio.sleep(5))
        except* ValueError as errors:
            children.extend(str(error) for error in errors.exceptions)

    async def cancels() -> None:
        raise asyncio.CancelledError

    eng.step("test/stubborn", stubborn)
    eng.step("test/careful", careful)
    eng.step("test/cancels", cancels)
    await eng.pipeline("stubborn", {"step": "test/stubborn", "timeout": "100ms"})
    await eng.pipeline("careful", "test/careful")
    await eng.pipeline("cancels", "test/cancels")
    await eng.node(workers=1)
    assert output_of(await eng.run("stubborn")) == "late"
    assert (await eng.run("careful")).status == "success"
    assert children == ["in a child task"]
    assert (await eng.run("cancels")).note == "the step cancelled itself"


async def test_a_context_says_nothing_after_its_step_has_ended(eng: Engine) -> None:
    """A task that a step left behind must not write into the step that runs now."""
    kept: list[Context] = []
    second = eng.held()

    async def leaves(context: Context) -> None:
        kept.append(context)

    eng.step("test/leaves", leaves)
    await eng.pipeline("two", "test/leaves", "test/held")
    await eng.node()
    tx_id = await eng.start("two")
    running = await second.began()
    for say in (
        lambda: kept[0].checkpoint({"not": "mine"}),
        lambda: kept[0].report_progress("late"),
        lambda: kept[0].set_switch("late", True),
    ):
        with pytest.raises(RuntimeError, match="s1 has ended"):
            say()
    await running.checkpoint({"is": "mine"})
    second.let_go()
    assert (await eng.final(tx_id)).status == "success"
    shown = await eng.transactions.show(tx_id)
    assert shown.switches == {}


async def test_documents_that_do_not_fit_one_call_go_in_several(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo")
    await eng.node(batch_bytes_max=4_000)
    ids = await eng.start_many("one", [{"n": n, "text": "x" * (n % 5) * 1_000} for n in range(100)])
    assert await eng.finals(ids) == ["success"] * 100
