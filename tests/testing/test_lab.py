"""A lab runs pipelines as nodes do, on the real scripts, and as quickly as they can be run."""

import time

import pytest

from datp.errors import BadDefinition, NotFound
from datp.steps import Aborted, Context, Failed, RetryLater, Success, WaitForSwitch
from datp.testing import GoesOn, Lab

DAY_MS = 86_400_000


def test_a_pipeline_runs_to_its_end(datp: Lab) -> None:
    datp.pipeline("greeting", "example/hello")
    result = datp.run("greeting", {"name": "Ada"})
    assert (result.status, result.output) == ("success", {"greeting": "Hello, Ada!"})
    assert result.ran == ["s1"]


def test_three_days_of_sleep_take_milliseconds(datp: Lab) -> None:
    datp.pipeline("nap", {"step": "util/delay", "with": {"duration": "3d"}}, "util/echo")
    began, began_held = time.monotonic(), datp.now_ms
    result = datp.run("nap", [1])
    assert (result.status, result.output) == ("success", [1])
    assert datp.now_ms - began_held == 3 * DAY_MS
    assert time.monotonic() - began < 1


def test_time_passes_only_as_far_as_it_is_told(datp: Lab) -> None:
    datp.pipeline("nap", {"step": "util/delay", "with": {"duration": "3d"}})
    tx_id = datp.start("nap")
    datp.advance("71h")
    assert datp.result(tx_id).status == "sleeping"
    datp.advance("1h")
    assert datp.result(tx_id).status == "success"


def test_a_wait_ends_with_its_switch(datp: Lab) -> None:
    datp.pipeline("approval", {"step": "util/wait", "with": {"switch": "approved"}})
    assert datp.run("approval").status == "waiting"
    assert datp.run("approval", switches={"approved": True}).status == "success"


def test_a_wait_times_out_and_what_was_done_is_undone(datp: Lab) -> None:
    bank = datp.mock("example/reserve", {"reservation": 7})
    datp.pipeline("order", "example/reserve", {"step": "util/wait", "with": {"switch": "approved", "timeout": "2d"}})
    result = datp.run("order", {"amount": "10.00"})
    assert (result.status, result.ran) == ("failed", ["s1", "s2", "s1:undo"])
    assert [call.output for call in bank.undone] == [{"reservation": 7}]
    assert bank.undone[0].idempotency_key == f"{bank.calls[0].idempotency_key}:undo"


def test_children_and_branches_run_on_all_their_node_groups(datp: Lab) -> None:
    datp.pipeline("child", "util/echo", nodeGroup="elsewhere")
    datp.pipeline(
        "parent",
        {"pipeline": "child"},
        {"parallel": {"branches": [{"pipeline": "child"}, {"pipeline": "child", "input": 2}]}},
    )
    result = datp.run("parent", 1)
    assert result.status == "success"
    assert [branch["output"] for branch in result.output] == [1, 2]
    assert {step.node_group for step in result.steps} == {"main", "elsewhere"}


def test_a_mock_says_one_thing_after_the_other(datp: Lab) -> None:
    outcomes = [RetryLater(1000), ValueError("no line"), lambda input: {"got": input}]
    mock = datp.mock("bank/pay", *outcomes)
    datp.pipeline("pay", {"id": "pay", "step": "bank/pay", "with": {"to": "shop"}, "retry": {"attemptsMax": 2}})
    result = datp.run("pay", 5)
    assert (result.status, result.output) == ("success", {"got": 5})
    assert [call.attempt for call in mock.calls] == [1, 2, 3]
    assert {call.idempotency_key for call in mock.calls} == {mock.calls[0].idempotency_key}
    assert mock.calls[0].definition == {"to": "shop"}
    again = datp.run("pay", 6)
    assert again.output == {"got": 6}


@pytest.mark.parametrize(
    ("outcome", "status"), [(Failed({"a": 1}, "so"), "failed"), (Aborted({"a": 1}, "so"), "aborted")]
)
def test_a_mock_may_fail(datp: Lab, outcome: object, status: str) -> None:
    datp.mock("bank/pay", outcome)
    datp.pipeline("pay", "bank/pay")
    result = datp.run("pay")
    assert (result.status, result.output, result.note) == (status, {"a": 1}, "so")


def test_steps_of_the_test_itself(datp: Lab) -> None:
    async def think(context: Context, input: int) -> object:
        if context.switch("go"):
            return Success(input + 1)
        context.report_progress({"thinking": True})
        await context.checkpoint({"seen": input})
        return WaitForSwitch("go", 60_000)

    def double(input: int) -> int:
        return input * 2

    datp.step("own/think", think)
    datp.step("own/double", double)
    datp.pipeline("thoughts", "own/think", "own/double")
    tx_id = datp.start("thoughts", 20)
    datp.settle()
    waiting = datp.result(tx_id)
    assert (waiting.status, waiting.progress) == ("waiting", {"thinking": True})
    datp.switch(tx_id, "go", True)
    assert datp.finish(tx_id).output == 42


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_that_raises_is_tried_again(datp: Lab) -> None:
    datp.pipeline("greeting", {"id": "greet", "step": "example/hello", "retry": {"attemptsMax": 3}})
    datp.raise_in("greet", OSError("no line"), times=2)
    result = datp.run("greeting")
    assert (result.status, result.step("greet").attempts) == ("success", 3)


def test_a_step_that_raises_too_often_ends_the_transaction(datp: Lab) -> None:
    datp.pipeline("greeting", {"id": "greet", "step": "example/hello"})
    datp.raise_in("example/hello")
    result = datp.run("greeting")
    assert result.status == "internal-error"
    assert "on purpose" in result.note


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_a_crash_the_step_runs_again_with_the_same_key(datp: Lab, when: str) -> None:
    bank = datp.mock("bank/pay", {"receipt": 1})
    datp.pipeline("pay", "bank/pay", "util/echo")
    getattr(datp, f"crash_{when}")("bank/pay")
    result = datp.run("pay")
    assert (result.status, result.output) == ("success", {"receipt": 1})
    assert len(bank.calls) == (1 if when == "before" else 2)
    assert {call.idempotency_key for call in bank.calls} == {bank.calls[0].idempotency_key}
    assert bank.calls[-1].attempt == 2


def test_a_crash_loses_nothing_that_was_checkpointed(datp: Lab) -> None:
    first, second = datp.mock("own/first"), datp.mock("own/second")
    datp.pipeline("two", "own/first", {"step": "own/second", "checkpoint": True})
    datp.crash_after("own/second")
    assert datp.run("two").status == "success"
    assert (len(first.calls), len(second.calls)) == (1, 2)


def test_what_crashes_every_time_is_parked_and_can_be_retried(datp: Lab) -> None:
    datp.pipeline("greeting", "example/hello")
    datp.crash_before("s1", times=7)
    result = datp.run("greeting")
    assert result.status == "waiting" and "parked" in result.note
    datp.retry(result.tx_id)
    assert datp.finish(result.tx_id).status == "success"


def test_a_step_that_takes_too_long_is_stopped(datp: Lab) -> None:
    datp.pipeline("greeting", {"step": "example/hello", "timeout": "5s"})
    datp.time_out("example/hello")
    began = datp.now_ms
    result = datp.run("greeting")
    assert (result.status, result.note) == ("timeout", "the step took longer than 5 s")
    assert datp.now_ms - began == 5_000


def test_a_cancel_while_a_step_runs_undoes_it(datp: Lab) -> None:
    bank = datp.mock("example/reserve", {})
    datp.pipeline("order", "example/reserve", "util/echo")
    datp.cancel_during("example/reserve")
    result = datp.run("order")
    assert (result.status, result.ran, len(bank.undone)) == ("cancelled", ["s1", "s1:undo"], 1)


@pytest.mark.parametrize("call", ["dequeue", "complete", "requeue", "sleep", "fork", "request"])
def test_a_lost_reply_changes_nothing(datp: Lab, call: str) -> None:
    said: list[int] = []

    async def tell(context: Context) -> None:
        said.append(context.attempt)
        await context.checkpoint()

    datp.step("own/tell", tell)
    datp.pipeline("child", "own/tell")
    datp.pipeline(
        "all",
        {"step": "util/delay", "with": {"duration": "5s"}},
        {"pipeline": "child"},
        {"parallel": {"branches": [{"pipeline": "child"}]}},
    )
    datp.lose_reply(call, times=3)
    assert datp.run("all").status == "success"
    assert said == [1, 1]


def test_an_undo_that_fails_is_parked_and_goes_on_when_it_is_retried(datp: Lab) -> None:
    bank = datp.mock("example/reserve", {})
    datp.pipeline("order", "example/reserve", "example/ship")
    datp.raise_in("example/reserve", undo=True)
    result = datp.run("order")
    assert result.status == "running" and "undo" in result.note
    datp.retry(result.tx_id)
    assert datp.finish(result.tx_id).status == "failed"
    assert len(bank.undone) == 1


# ── what a lab refuses ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_that_polls_for_ever_is_told(datp: Lab) -> None:
    lab = datp
    lab._driver._runs_max = 50
    lab.mock("own/poll", RetryLater(1000))
    lab.pipeline("poll", "own/poll")
    with pytest.raises(GoesOn, match="not finished after"):
        lab.run("poll")


def test_a_fault_that_never_happened_is_told(datp_server: object) -> None:
    lab = Lab(datp_server)  # type: ignore[arg-type]
    lab.crash_before("nowhere")
    with pytest.raises(AssertionError, match="never did: crash-before in nowhere"):
        lab.close()


def test_what_is_wrong_with_a_pipeline_is_said_when_it_is_pushed(datp: Lab) -> None:
    with pytest.raises(BadDefinition, match="no step type bank/pay"):
        datp.pipeline("pay", "bank/pay")
    with pytest.raises(BadDefinition, match="no pipeline nothing"):
        datp.pipeline("pay", {"pipeline": "nothing"})
    with pytest.raises(NotFound, match="no pipeline pay"):
        datp.run("pay")
