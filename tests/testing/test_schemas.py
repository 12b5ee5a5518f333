"""What a pipeline says of its input and output is true: for clients, for those that call it, and in parallel."""

from typing import Any

import pytest

from datp.errors import BadInput
from datp.model.schema import Misfit
from datp.testing import Lab

POSITIVE = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 1}}}


def test_a_start_that_does_not_fit_is_refused_with_all_that_is_wrong(datp: Lab) -> None:
    datp.pipeline("count", "util/echo", inputSchema={**POSITIVE, "additionalProperties": False})
    with pytest.raises(BadInput) as refused:
        datp.run("count", {"n": 0, "m": 1})
    assert refused.value.http_status == 422
    assert {one.path for one in refused.value.errors if isinstance(one, Misfit)} == {"/n", ""}
    assert datp.run("count", {"n": 1}).status == "success"


def test_a_start_that_was_refused_takes_no_external_id(datp: Lab) -> None:
    datp.pipeline("count", "util/echo", inputSchema=POSITIVE)
    with pytest.raises(BadInput):
        datp.start("count", {"n": 0}, external_id="one")
    assert datp.finish(datp.start("count", {"n": 2}, external_id="one")).output == {"n": 2}


@pytest.mark.parametrize(
    "call", [{"pipeline": "count"}, {"parallel": {"branches": [{"pipeline": "count"}]}}], ids=["child", "branch"]
)
def test_a_call_that_does_not_fit_fails_and_what_was_done_is_undone(datp: Lab, call: dict[str, Any]) -> None:
    bank = datp.mock("example/reserve", {"n": 0})
    datp.pipeline("count", "util/echo", inputSchema=POSITIVE)
    datp.pipeline("caller", "example/reserve", call)
    result = datp.run("caller")
    assert result.status == "failed"
    assert result.note == "the input doesn't fit its schema at /n: 0 is less than the minimum of 1"
    assert len(bank.undone) == 1


def test_an_output_that_does_not_fit_fails_and_what_was_done_is_undone(datp: Lab) -> None:
    bank = datp.mock("example/reserve", {"n": "one"})
    datp.pipeline("count", "example/reserve", outputSchema=POSITIVE)
    result = datp.run("count")
    assert (result.status, result.ran) == ("failed", ["s1", "s1:undo"])
    assert result.output["errors"] == [{"path": "/n", "problem": '"one" is not of type "integer"'}]
    assert result.note.startswith("the output doesn't fit its schema at /n")
    assert len(bank.undone) == 1


def test_an_output_that_fits_is_success(datp: Lab) -> None:
    datp.pipeline("count", "util/echo", outputSchema=POSITIVE, tags=["numbers"], notes="Counts.")
    datp.pipeline("caller", {"pipeline": "count"}, outputSchema=POSITIVE)
    assert datp.run("caller", {"n": 3}).output == {"n": 3}
