"""What integrators know of the original: errors, switches and sleeping, as shipped step types show it.

What answers of back ends mean is in test_response_classifier.py; since when a step sleeps, in tests/model.
"""

from typing import Any

import pytest

from datp.errors import BadSwitch
from datp.steps import Context, RetryLater, WaitForSwitch
from datp.testing import Lab

EXAMPLE_STEP = {
    "by": "input.instruction",
    "cases": {
        "fail": {"status": "failed", "reply": {"foo": "bar", "alert": "it failed"}},
        "abort": {"status": "aborted", "reply": {"alert": "it was aborted"}},
    },
    "otherwise": {"reply": {"foo": "bar"}},
}

# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("instruction", "status", "output"),
    [
        ("succeed", "success", {"foo": "bar"}),
        ("fail", "failed", {"foo": "bar", "alert": "it failed"}),
        ("abort", "aborted", {"alert": "it was aborted"}),
    ],
)
@pytest.mark.parametrize("in_child", [False, True])
def test_a_status_and_its_output_go_up_to_the_client(
    datp: Lab, instruction: str, status: str, output: Any, in_child: bool
) -> None:
    datp.pipeline("child", {"step": "mock/reply", "with": EXAMPLE_STEP})
    datp.pipeline("t", {"pipeline": "child"} if in_child else {"step": "mock/reply", "with": EXAMPLE_STEP}, "util/echo")
    result = datp.run("t", {"instruction": instruction})
    assert (result.status, result.output) == (status, output)


def test_the_first_step_that_does_not_succeed_ends_its_pipeline(datp: Lab) -> None:
    datp.pipeline("t", "util/echo", {"step": "mock/reply", "with": EXAMPLE_STEP}, "util/echo")
    assert datp.run("t", {"instruction": "abort"}).ran == ["s1", "s2"]


# ── switches ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def waiting(datp: Lab) -> str:
    datp.pipeline("t", {"step": "util/wait", "with": {"switch": "the end"}})
    tx_id = datp.start("t")
    datp.settle()
    return tx_id


def test_there_are_none_initially(datp: Lab, waiting: str) -> None:
    assert datp.result(waiting).switches == {}


@pytest.mark.parametrize("value", [True, False, 0, 17, -1.5, "", "x y,z", "x" * 32])
def test_a_value_keeps_its_type(datp: Lab, waiting: str, value: Any) -> None:
    datp.switch(waiting, "some.name, with=anything", value)
    [(name, found)] = datp.result(waiting).switches.items()
    assert (name, found, type(found)) == ("some.name, with=anything", value, type(value))


def test_several_are_set_changed_and_deleted(datp: Lab, waiting: str) -> None:
    for name, value in (("a", 1), ("b.c", "x"), ("d", True), ("a", 2), ("d", None)):
        datp.switch(waiting, name, value)
    assert datp.result(waiting).switches == {"a": 2, "b.c": "x"}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([1], "Switch can only be boolean, number, or string (< 32 chars)"),
        ({"a": 1}, "Switch can only be boolean, number, or string (< 32 chars)"),
        ("x" * 33, f"Switch exceeds maximum length (s: {'x' * 33})"),
    ],
)
def test_a_wrong_value_is_refused_in_the_same_words(datp: Lab, waiting: str, value: Any, says: str) -> None:
    with pytest.raises(BadSwitch) as caught:
        datp.switch(waiting, "s", value)
    assert str(caught.value) == says
    datp.pipeline("sets", {"step": "util/set-switch", "with": {"switch": "s", "value": "${input}"}})
    assert datp.run("sets", value).note == says


def test_the_same_value_again_wakes_nobody(datp: Lab) -> None:
    runs: list[int] = []

    async def counts(context: Context) -> Any:
        runs.append(context.attempt)
        return "done" if context.switch("s") == 2 else WaitForSwitch("s")

    datp.step("test/counts", counts)
    datp.pipeline("t", "test/counts")
    tx_id = datp.start("t")
    for value in (1, 1, 1):
        datp.settle()
        datp.switch(tx_id, "s", value)
    datp.settle()
    assert len(runs) == 2
    datp.switch(tx_id, "s", 2)
    assert datp.finish(tx_id).output == "done"


# ── sleeping ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_runs_are_counted_for_each_step_by_itself(datp: Lab) -> None:
    async def sleeps(context: Context) -> Any:
        return "rested" if context.attempt == 4 else RetryLater(60_000)

    datp.step("test/sleeps", sleeps)
    datp.pipeline("t", "test/sleeps", {"step": "util/delay", "with": {"duration": "5m"}})
    tx_id = datp.start("t")
    datp.settle()
    began, seen = datp.now_ms, []
    for _ in range(3):
        assert datp.result(tx_id).status == "sleeping"
        seen.append(datp.result(tx_id).step("s1").attempts)
        datp.advance("1m")
    assert seen == [1, 2, 3]
    # The step after it sleeps for itself: nothing of the first one's count is left.
    assert datp.result(tx_id).step("s2").attempts == 1
    assert datp.finish(tx_id).output == "rested"
    assert datp.now_ms - began == 3 * 60_000 + 5 * 60_000


def test_a_delay_after_a_step_that_slept_is_not_skipped(datp: Lab) -> None:
    datp.pipeline("t", *[{"step": "util/delay", "with": {"duration": "1h"}}] * 3)
    began = datp.now_ms
    datp.run("t")
    assert datp.now_ms - began == 3 * 3_600_000
