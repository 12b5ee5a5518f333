"""Definitions are read as they are meant, or refused in one sentence; a version is what the definition says."""

import copy
import datetime
import math
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made import LIMITS, any_text, anything, is_clear, json_values, nested, trying

from datp.errors import BadDefinition
from datp.model.limits import DURATION_MAX_MS, Limits
from datp.model.pipeline import (
    PipelineDefinition,
    decode_pipeline,
    duration_ms,
    encode_pipeline,
    needed,
    parse_pipeline,
)

names = st.sampled_from(["a", "order", "shop/reserve", "x.y", "Z9"])
durations = st.sampled_from([0, 1, 250, "30s", "250ms", "1.5h", "7d"])
backoffs = st.fixed_dictionaries(
    {}, optional={"firstMs": st.integers(0, 9), "maxMs": st.integers(1_000, 9_999), "factor": st.sampled_from([1, 2.5])}
)
retries = st.fixed_dictionaries({"attemptsMax": st.integers(1, 9)}, optional={"backoff": backoffs})
branches = st.fixed_dictionaries({"pipeline": names}, optional={"input": json_values})


@st.composite
def parallels(draw: st.DrawFn) -> dict[str, Any]:
    listed = draw(st.lists(branches, min_size=1, max_size=3))
    join = draw(st.sampled_from(["all", "first"]) | st.integers(1, len(listed)))
    return {"branches": listed, "join": join}


@st.composite
def steps(draw: st.DrawFn, number: int) -> dict[str, Any]:
    kind = draw(st.sampled_from(["step", "pipeline", "parallel"]))
    optional = {
        "with": st.dictionaries(st.sampled_from(["x", "ä", "_h"]), json_values, max_size=2),
        "retry": retries,
        "timeout": durations,
        "undo": st.fixed_dictionaries({"step": names}, optional={"with": st.just({"x": 1})}),
        "checkpoint": st.booleans(),
        "description": st.sampled_from(["", "says"]),
    }
    more = draw(st.fixed_dictionaries({}, optional=optional))  # type: ignore[arg-type]
    return {"id": f"s{number}", kind: draw(parallels() if kind == "parallel" else names), **more}


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.integers(1, 3))
    optional = {
        "nodeGroup": names,
        "description": st.sampled_from(["", "says"]),
        "isTransactionType": st.booleans(),
        "deadline": durations,
    }
    more = draw(st.fixed_dictionaries({}, optional=optional))
    return {"name": draw(names), "steps": [draw(steps(number)) for number in range(count)], **more}


def parsed(data: Any) -> PipelineDefinition:
    return parse_pipeline(data, LIMITS)


def reordered(value: Any) -> Any:
    """The same, with every object's keys the other way round."""
    if isinstance(value, dict):
        return {key: reordered(inner) for key, inner in reversed(value.items())}
    return [reordered(inner) for inner in value] if isinstance(value, list) else value


@trying(200)
@given(definitions())
def test_a_definition_reads_back_as_it_was_stored(data: dict[str, Any]) -> None:
    definition = parsed(data)
    assert decode_pipeline(encode_pipeline(definition)) == definition
    assert decode_pipeline(encode_pipeline(definition)).version == definition.version
    assert [step.id for step in definition.steps] == list(definition.index_of)
    assert definition.deadline_ms >= 0 and all(step.timeout_ms >= 0 for step in definition.steps)


@trying(200)
@given(definitions())
def test_a_version_doesnt_depend_on_the_order_of_keys(data: dict[str, Any]) -> None:
    assert parsed(reordered(data)).version == parsed(data).version


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the scalars of a document stand."""
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        return [place for key, one in inner for place in places(one, (*path, key))]
    return [path]


def typed(value: Any) -> Any:
    """The value, so that true is not 1 and 1 is not 1.0."""
    value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    return [typed(inner) for inner in value] if isinstance(value, list) else (type(value), repr(value))


@trying(300)
@given(definitions(), st.data())
def test_a_version_changes_with_any_change(data: dict[str, Any], draw: st.DataObject) -> None:
    changed = copy.deepcopy(data)
    *path, last = draw.draw(st.sampled_from(places(data)))
    holder: Any = changed
    for key in path:
        holder = holder[key]
    holder[last] = draw.draw(st.sampled_from(["b", "first", "all", 1, 2, 3, True, False, None, "5m", 7.5]))
    try:
        other = parsed(changed)
    except BadDefinition:
        assume(False)
    assert (other.version == parsed(data).version) == (typed(other) == typed(parsed(data)))


def test_a_version_is_sixteen_hexadecimal_digits_of_what_is_said() -> None:
    definition = parsed({"name": "a", "steps": [{"id": "s", "step": "x"}]})
    said = parsed({"name": "a", "steps": [{"id": "s", "step": "x", "timeout": 0, "with": {}}], "nodeGroup": "main"})
    assert len(definition.version) == 16 and int(definition.version, 16) >= 0
    assert said.version == definition.version, "a default that is written out says the same"


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────


def is_refused_clearly(data: Any, limits: Limits = LIMITS) -> bool:
    """Whether it is refused with BadDefinition; what is read can be stored."""
    try:
        definition = parse_pipeline(data, limits)
    except BadDefinition as error:
        assert is_clear(error)
        return True
    assert decode_pipeline(encode_pipeline(definition)) == definition and len(definition.version) == 16
    return False


@trying(300)
@given(json_values | anything)
def test_whatever_is_no_definition_is_refused(data: Any) -> None:
    assert is_refused_clearly(data)


@trying(500)
@given(definitions(), st.data())
def test_a_definition_with_anything_changed_is_read_or_refused(data: dict[str, Any], draw: st.DataObject) -> None:
    changed = copy.deepcopy(data)
    *path, last = draw.draw(st.sampled_from(places(data)))
    holder: Any = changed
    for key in path:
        holder = holder[key]
    if draw.draw(st.booleans()):
        holder[last] = draw.draw(json_values | anything)
    elif isinstance(holder, dict):
        holder[draw.draw(any_text | st.sampled_from(["step", "pipeline", "parallel", "undo"]))] = draw.draw(anything)
    is_refused_clearly(changed)


STEP = {"id": "s", "step": "x"}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "name"),
        ({"name": "a"}, "steps"),
        ({"name": "a", "steps": []}, "1 to 200 steps"),
        ({"name": "a b", "steps": [STEP]}, "name"),
        ({"name": "a", "steps": [STEP, STEP]}, "same id"),
        ({"name": "a", "steps": [{"id": "s"}]}, "one of: step, pipeline, parallel"),
        ({"name": "a", "steps": [{"id": "s", "step": "x", "pipeline": "y"}]}, "one of: step, pipeline, parallel"),
        ({"name": "a", "steps": [{"id": "", "step": "x"}]}, "step id"),
        ({"name": "a", "steps": [{"id": "s", "step": "pipeline"}]}, "instead of"),
        ({"name": "a", "steps": [{"id": "s", "step": "parallel"}]}, "instead of"),
        ({"name": "a", "steps": [{"id": "s", "step": ":"}]}, "step"),
        ({"name": "a", "steps": [{**STEP, "timeout": "soon"}]}, "duration"),
        ({"name": "a", "steps": [{**STEP, "timeout": -1}]}, "duration"),
        ({"name": "a", "steps": [{**STEP, "timeout": 1.5}]}, "timeout"),
        ({"name": "a", "steps": [{**STEP, "timeout": True}]}, "timeout"),
        ({"name": "a", "steps": [STEP], "deadline": "1 fortnight"}, "duration"),
        ({"name": "a", "steps": [{**STEP, "retry": {"attemptsMax": 0}}]}, "attemptsMax"),
        ({"name": "a", "steps": [{**STEP, "retry": {"attemptsMax": 10_001}}]}, "attemptsMax"),
        ({"name": "a", "steps": [{**STEP, "retry": {"backoff": {"factor": math.inf}}}]}, "factor"),
        ({"name": "a", "steps": [{**STEP, "retry": {"backoff": {"firstMs": 9, "maxMs": 1}}}]}, "firstMs"),
        ({"name": "a", "steps": [{**STEP, "retries": 3}]}, "retries"),
        ({"name": "a", "steps": [{**STEP, "undo": {"step": ""}}]}, "undo"),
        ({"name": "a", "steps": [{**STEP, "undo": "x"}]}, "undo"),
        ({"name": "a", "steps": [{"id": "s", "parallel": {"branches": []}}]}, "branches"),
        ({"name": "a", "steps": [{"id": "s", "parallel": {"branches": [{"pipeline": ""}]}}]}, "pipeline"),
        ({"name": "a", "steps": [{"id": "s", "parallel": {"branches": [{"pipeline": "b"}], "join": 2}}]}, "join"),
        ({"name": "a", "steps": [{"id": "s", "parallel": {"branches": [{"pipeline": "b"}], "join": 0}}]}, "join"),
        ({"name": "a", "steps": [{"id": "s", "parallel": {"branches": [{"pipeline": "b"}], "join": "1"}}]}, "join"),
        ({"name": "a", "steps": [{**STEP, "with": {"x": math.nan}}]}, "NaN"),
        ({"name": "a", "steps": [{**STEP, "with": {"x": nested(101)}}]}, "nested"),
        ({"name": "a", "steps": [{**STEP, "with": {"x": "\ud800"}}]}, "pipeline a"),
        ({"name": "a", "steps": [STEP], "description": "\ud800"}, "pipeline a"),
        ({"name": "a", "steps": [{**STEP, "with": {"x": object()}}]}, "object"),
        ({"name": "a", "steps": [STEP], "\ud800": 1}, "surrogates"),
        ({"name": "a", "steps": [STEP], "version": "1"}, "version"),
        ({"name": "a", "steps": [STEP], "nodeGroup": ""}, "nodeGroup"),
    ],
)
def test_a_wrong_definition_is_refused_and_the_sentence_says_why(data: dict[str, Any], says: str) -> None:
    with pytest.raises(BadDefinition) as refusal:
        parsed(data)
    assert says in str(refusal.value)
    assert is_clear(refusal.value)


def test_limits_of_steps_and_branches_are_named() -> None:
    limits = Limits(pipeline_steps_max=2, parallel_width_max=2)
    three = [{"id": f"s{n}", "step": "x"} for n in range(3)]
    with pytest.raises(BadDefinition, match="pipeline_steps_max"):
        parse_pipeline({"name": "a", "steps": three}, limits)
    wide = {"id": "s", "parallel": {"branches": [{"pipeline": "b"}] * 3}}
    with pytest.raises(BadDefinition, match="parallel_width_max"):
        parse_pipeline({"name": "a", "steps": [wide]}, limits)
    assert not is_refused_clearly({"name": "a", "steps": three[:2]}, limits)


def test_what_yaml_makes_of_a_date_is_stored_and_used_as_text() -> None:
    definition = parsed({"name": "a", "steps": [{**STEP, "with": {"on": datetime.date(2026, 11, 18)}}]})
    assert definition.steps[0].with_ == {"on": "2026-11-18"}


def test_child_names_are_all_pipelines_that_are_named() -> None:
    data = {
        "name": "a",
        "steps": [
            STEP,
            {"id": "c", "pipeline": "child"},
            {"id": "p", "parallel": {"branches": [{"pipeline": "left"}, {"pipeline": "right", "input": None}]}},
        ],
    }
    definition = parsed(data)
    assert definition.child_names() == {"child", "left", "right"}
    assert [step.step_type for step in definition.steps] == ["x", "pipeline", "parallel"]


# ── durations and joins ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        (0, 0),
        (1500, 1500),
        ("250ms", 250),
        ("30s", 30_000),
        (" 30 s ", 30_000),
        ("1.5h", 5_400_000),
        ("2h", 7_200_000),
        ("5m", 300_000),
        ("7d", 604_800_000),
        ("0.5s", 500),
        (DURATION_MAX_MS, DURATION_MAX_MS),
        ("36500d", DURATION_MAX_MS),
    ],
)
def test_a_duration_is_milliseconds_or_has_a_unit(given: Any, ms: int) -> None:
    assert duration_ms(given, "timeout") == ms


@pytest.mark.parametrize(
    "given",
    [
        "", "5", "s", "-1s", "1s2", "1 week", "1,5s", "1e3s", "٣s", "nans", "infs", "1.s", ".5s", "36501d",
        "9" * 400 + "d", "9" * 5_000 + "s", "1." + "9" * 400 + "s",
        -1, DURATION_MAX_MS + 1, 1.5, True, None, [], {}, b"5s", math.inf,
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_and_the_field_is_named(given: Any) -> None:
    with pytest.raises(BadDefinition) as refusal:
        duration_ms(given, "deadline")
    assert refusal.value.field == "deadline" and is_clear(refusal.value)


@trying(300)
@given(anything | any_text)
def test_any_other_duration_is_refused_with_a_clear_sentence(given: Any) -> None:
    try:
        assert 0 <= duration_ms(given, "timeout") <= DURATION_MAX_MS
    except BadDefinition as error:
        assert is_clear(error)


@trying(200)
@given(anything, st.integers(1, 100))
def test_a_join_is_all_first_or_a_number_of_branches(join: Any, width: int) -> None:
    try:
        assert (0 if join == "settled" else 1) <= needed(join, width) <= width
        assert join in ("all", "first", "settled") or 1 <= join <= width
    except BadDefinition as error:
        assert is_clear(error)


def test_all_is_every_branch_and_first_is_one() -> None:
    assert needed("all", 5) == 5
    assert needed("first", 5) == 1
    assert needed("settled", 5) == 0
    assert needed(3, 5) == 3
