"""Any pipelines that pass the check, with any JSON as input: they end, and never with an internal error."""

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datp.errors import BadDefinition, BadInput
from datp.settings import Settings
from datp.testing import Lab, LabServer

NAMES: Final = ("a", "b", "c")
CONDITIONS: Final = ("", "input", "input.x", "length(input) > `1`", "request.x == 'y'", "abs(input) > `0`")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "id"]), inner, max_size=3),
    max_leaves=6,
)
schemas = st.sampled_from(
    [None, True, False, {"type": "object"}, {"type": ["array", "null"]}, {"properties": {"x": {"type": "integer"}}}]
)
types = st.sampled_from(
    [
        {"step": "util/echo"},
        {"step": "util/delay", "with": {"duration": "3d"}},
        {"step": "util/wait", "with": {"switch": "go", "timeout": "1h"}},
        {"step": "util/require", "with": {"condition": "input.x"}},
        {"step": "util/fixed-reply", "with": {"status": "failed", "reply": {"x": 1}}},
        {"step": "util/fixed-reply", "with": {"reply": {"x": "${input.x}"}}},
        {"step": "example/reserve", "undo": {"step": "util/echo"}},
        {"step": "fields/check", "with": {"fields": {"x": "integer"}}},
        {"step": "pipeline/map", "with": {"pipeline": "b", "items": "input"}},
        {"step": "pipeline/route", "with": {"routes": [{"when": "input.x", "pipeline": "b"}], "default": "c"}},
    ]
)
calls = st.sampled_from(NAMES).map(lambda name: {"pipeline": name})
forks = st.builds(
    lambda names, join: {"parallel": {"branches": [{"pipeline": name} for name in names], "join": join}},
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=2),
    st.sampled_from(["all", "first"]),
)


@st.composite
def pipelines(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Three pipelines, which may call one another."""
    made = []
    for name in NAMES:
        steps = []
        for number in range(1, draw(st.integers(1, 3)) + 1):
            step = dict(draw(types | calls | forks))
            if when := draw(st.sampled_from(CONDITIONS)):
                step["when"] = when
            if draw(st.booleans()):
                step["retry"] = {"attemptsMax": 2}
            steps.append({"id": f"s{number}", **step})
        pipeline: dict[str, Any] = {"name": name, "steps": steps}
        for field in ("inputSchema", "outputSchema"):
            if (schema := draw(schemas)) is not None:
                pipeline[field] = schema
        if draw(st.booleans()):
            pipeline["deadline"] = "2d"
        made.append(pipeline)
    return made


@settings(max_examples=150, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(pipelines(), json_values, st.booleans())
def test_what_passes_the_check_ends(
    datp_server: LabServer, made: list[dict[str, Any]], value: Any, is_set: bool
) -> None:
    with Lab(datp_server, settings=Settings(partitions=1, nesting_max=3, parallel_width_max=8)) as lab:
        try:
            lab.push(*made)
        except BadDefinition:
            return
        try:
            result = lab.run("a", value, switches={"go": True} if is_set else {})
        except BadInput as refused:
            assert refused.errors
            return
        assert result.is_final, result
        assert result.status != "internal-error", result


@pytest.mark.parametrize("value", [None, 0, "", [], {}, {"x": {"x": []}}, [[[]]], 10**30, 1e300, "\u0000", "ü" * 1000])
def test_odd_inputs_of_a_pipeline_with_a_schema(datp: Lab, value: Any) -> None:
    datp.pipeline("odd", "util/echo", inputSchema={"type": ["object", "null"]}, outputSchema={"type": "object"})
    try:
        result = datp.run("odd", value)
    except BadInput as refused:
        assert not isinstance(value, dict) and value is not None, refused
        return
    assert result.status == ("success" if isinstance(value, dict) else "failed")
