"""The steps for trying things out do what they are for."""

from typing import Any

import pytest

from datp.testing import Lab


@pytest.mark.parametrize(
    ("instruction", "status", "output"),
    [("fail", "failed", {"why": "fail"}), ("abort", "aborted", None), (7, "success", 7), ("?", "success", "else ?")],
)
def test_a_mocked_reply_depends_on_the_input(datp: Lab, instruction: Any, status: str, output: Any) -> None:
    cases = {
        "fail": {"status": "failed", "reply": {"why": "${input.instruction}"}},
        "abort": {"status": "aborted"},
        "7": {"reply": 7},
    }
    definition = {"by": "input.instruction", "cases": cases, "otherwise": {"reply": "else ${input.instruction}"}}
    datp.pipeline("t", {"step": "mock/reply", "with": definition})
    result = datp.run("t", {"instruction": instruction})
    assert (result.status, result.output) == (status, output)


def test_a_mocked_reply_without_a_case_fails(datp: Lab) -> None:
    datp.pipeline("t", {"step": "mock/reply", "with": {"by": "input", "cases": {}}})
    assert datp.run("t", "x").note == "there is no case for 'x'"


def test_a_slow_step_reports_and_can_run_out_of_its_time(datp: Lab) -> None:
    datp.pipeline("t", {"step": "mock/slow", "with": {"duration": "10ms"}})
    result = datp.run("t", 7)
    assert (result.status, result.output, result.progress) == ("success", 7, {"done": 19, "of": 20})
    datp.time_out("mock/slow")
    assert datp.run("t").status == "timeout"


def test_an_unsteady_step_fails_or_raises_by_chance(datp: Lab) -> None:
    datp.pipeline("fails", {"step": "mock/unsteady", "with": {"chance": 1}})
    datp.pipeline("raises", {"step": "mock/unsteady", "with": {"chance": 1, "raises": True}})
    datp.pipeline("never", {"step": "mock/unsteady", "with": {"chance": 0}})
    retried = {"attemptsMax": 200, "backoff": {"firstMs": 1, "maxMs": 1}}
    datp.pipeline("retried", {"step": "mock/unsteady", "with": {"chance": 0.5, "raises": True}, "retry": retried})
    assert [datp.run(name, 7).status for name in ("fails", "raises", "never", "retried")] == [
        "failed",
        "internal-error",
        "success",
        "success",
    ]
