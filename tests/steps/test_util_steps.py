"""The small step types: what they do beyond their examples."""

import logging
from typing import Any

import pytest

from datp.errors import BadDefinition
from datp.testing import Lab


@pytest.mark.parametrize(
    ("definition", "least_ms", "most_ms"),
    [
        ({"duration": "50ms"}, 50, 50),
        ({"duration": 0}, 0, 0),
        ({"duration": "1h", "upTo": "2h"}, 3_600_000, 7_200_000),
        ({"duration": "1s", "expression": "input.pause"}, 90_000, 90_000),
        ({"duration": "3s", "expression": "input.missing"}, 3_000, 3_000),
    ],
)
def test_a_delay_takes_as_long_as_it_says(datp: Lab, definition: Any, least_ms: int, most_ms: int) -> None:
    datp.pipeline("t", {"step": "util/delay", "with": definition})
    began = datp.now_ms
    assert datp.run("t", {"pause": "90s"}).status == "success"
    assert least_ms <= datp.now_ms - began <= most_ms


@pytest.mark.parametrize("pause", [-5, "soon", [1], True, "1e9"])
def test_a_delay_that_is_asked_for_wrongly_fails(datp: Lab, pause: Any) -> None:
    datp.pipeline("t", {"step": "util/delay", "with": {"expression": "input"}})
    result = datp.run("t", pause)
    assert result.status == "failed"
    assert "is not a duration" in result.note


def test_two_delays_are_two_delays(datp: Lab) -> None:
    datp.pipeline("t", {"step": "util/delay", "with": {"duration": "1m"}}, {"step": "util/delay"})
    began = datp.now_ms
    datp.run("t")
    assert datp.now_ms - began == 61_000


@pytest.mark.parametrize(
    ("on_timeout", "status"), [("failed", "failed"), ("aborted", "aborted"), ("success", "success")]
)
def test_a_wait_that_is_over_ends_as_it_says(datp: Lab, on_timeout: str, status: str) -> None:
    datp.pipeline("t", {"step": "util/wait", "with": {"switch": "go", "timeout": "1d", "onTimeout": on_timeout}})
    assert datp.run("t").status == status


def test_a_wait_goes_on_with_a_true_value_and_not_with_a_false_one(datp: Lab) -> None:
    datp.pipeline("t", {"step": "util/wait", "with": {"switch": "go"}})
    tx_id = datp.start("t", 7)
    datp.settle()
    for value in (False, 0, ""):
        datp.switch(tx_id, "go", value)
        datp.settle()
        assert datp.result(tx_id).status == "waiting"
    datp.switch(tx_id, "go", "yes")
    result = datp.finish(tx_id)
    assert (result.status, result.output) == ("success", 7)


def test_what_is_set_before_the_wait_counts(datp: Lab) -> None:
    datp.pipeline(
        "t",
        {"step": "util/set-switch", "with": {"switch": "go", "value": "${input.go}"}},
        {"step": "util/wait", "with": {"switch": "go"}},
    )
    assert datp.run("t", {"go": True}).status == "success"


@pytest.mark.parametrize("value", [{"a": 1}, [1], "x" * 33])
def test_a_switch_that_can_not_be_set_fails(datp: Lab, value: Any) -> None:
    datp.pipeline("t", {"step": "util/set-switch", "with": {"switch": "s", "value": "${input}"}})
    result = datp.run("t", value)
    assert result.status == "failed"
    assert "Switch" in result.note


def test_a_progress_report_that_is_too_large_fails(datp: Lab) -> None:
    datp.pipeline("t", {"step": "util/progress", "with": {"progressReport": "${input}"}})
    assert datp.run("t", {"done": 1}).progress == {"done": 1}
    result = datp.run("t", "x" * 20_000)
    assert (result.status, "progress_bytes_max" in result.note) == ("failed", True)


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "fatal"])
def test_a_line_is_logged_at_its_level(datp: Lab, level: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "datp.step")
    datp.pipeline("t", {"step": "util/log", "with": {"message": "order ${input.id}", "level": level}})
    result = datp.run("t", {"id": 7})
    name = "CRITICAL" if level == "fatal" else level.upper()
    said = [(record.levelname, record.getMessage()) for record in caplog.records if "order" in record.getMessage()]
    assert said == [(name, f"{result.tx_id}: order 7")]


def test_a_requirement_without_a_sentence_says_what_does_not_hold(datp: Lab) -> None:
    datp.pipeline("t", {"step": "util/require", "with": {"condition": "input.ok", "status": "aborted"}})
    result = datp.run("t", {"ok": False})
    assert (result.status, result.output) == ("aborted", {"error": "it does not hold that input.ok"})


@pytest.mark.parametrize(
    ("step_type", "definition", "says"),
    [
        ("util/delay", {"duration": "soon"}, "duration: 'soon' is not a duration"),
        ("util/delay", {"duration": "2s", "upTo": "1s"}, "shorter"),
        ("util/delay", {"seconds": 1}, "unknown field"),
        ("util/wait", {}, "missing required field `switch`"),
        ("util/wait", {"switch": ""}, "1 to 64 characters"),
        ("util/wait", {"switch": "s", "timeout": "-1s"}, "timeout"),
        ("util/wait", {"switch": "s", "onTimeout": "explode"}, "Invalid enum value"),
        ("util/fixed-reply", {"status": "timeout"}, "Invalid enum value"),
        ("util/fixed-reply", {"reply": {"a": ["${input."]}}, "reply: "),
        ("util/require", {"condition": "input =="}, "condition: "),
        ("util/set-switch", {"switch": "s", "value": [1]}, "no such value"),
        ("util/log", {"message": "${"}, "message: "),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(datp: Lab, step_type: str, definition: Any, says: str) -> None:
    with pytest.raises(BadDefinition) as caught:
        datp.pipeline("t", {"step": step_type, "with": definition})
    assert says in str(caught.value)
