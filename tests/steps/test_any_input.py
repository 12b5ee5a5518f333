"""Whatever comes in, and whatever definition was taken: a step ends, and never with an internal error."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shipped_types import STEP_TYPES

from datp.errors import BadRequest
from datp.model.status import FINAL
from datp.settings import Settings
from datp.steps.contract import StepType
from datp.steps.library.sql_targets import CREATE_TABLE, target_for
from datp.testing import Lab, LabServer

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12, alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["id", "sku", "name", "items", "amount", "country", "kind", "x", "customer"]), inner, max_size=4
    ),
    max_leaves=10,
)  # fmt: skip

EXPRESSIONS: Final = ("input", "abs(input)", "input.items[]", "sort(input)", "tx.attempt", "input ||")
TEMPLATES: Final = (
    "${input}",
    "${input.id}",
    "${input.x.y}",
    "${length(input)}",
    "${steps}",
    "a ${now}",
    "${[input]}",
    "${",
)
WORDS: Final = (
    "success",
    "failed",
    "5ms",
    "iso",
    "EUR 1.00",
    "YYYY",
    "printf",
    "child",
    "%s",
    "GET",
    "POST",
    "0",
    "stop",
    "",
)
TEXTS: Final = EXPRESSIONS + TEMPLATES + WORDS

put_in = st.sampled_from(TEXTS) | st.integers(-2, 20) | st.booleans() | st.none() | json_values

CALM: Final[dict[str, dict[str, Any]]] = {
    # Nobody is called, nothing large is run, and what is there to go wrong does not.
    "http/call": {"url": "http://127.0.0.1:1/${input}", "timeout": "1s", "retries": 0},
    "program/run": {"program": "printf", "timeout": "2s"},
    "sql/run": {"database": "shop", "timeout": "2s", "retries": 0, "statement": "SELECT :v AS v",
                "parameters": {"v": "${input}"}},
    "mock/slow": {"duration": "5ms"},
    "mock/unsteady": {"raises": False},
    "pipeline/map": {"pipeline": "child"},
    "pipeline/parallel": {"branches": [{"pipeline": "child"}, {"pipeline": "child", "when": "input"}]},
    "pipeline/route": {"routes": [{"pipeline": "child", "when": "input"}], "default": "child"},
}  # fmt: skip


def places_in(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a definition, its own excepted."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield (*above, name)
        yield from places_in(one, (*above, name))


@st.composite
def definitions(draw: st.DrawFn) -> tuple[StepType, dict[str, Any]]:
    """A step type with one of its definitions, in which something was changed."""
    step_type = draw(st.sampled_from(STEP_TYPES))
    known = [step_type.default_definition, *(example.definition for example in step_type.examples)]
    definition: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(known)))
    for _ in range(draw(st.integers(0, 2))):
        places = list(places_in(definition))
        if places:
            *way, last = draw(st.sampled_from(places))
            target: Any = definition
            for name in way:
                target = target[name]
            target[last] = draw(put_in)
    for field in draw(st.lists(st.sampled_from(step_type.form), max_size=2)) if step_type.form else []:
        definition[field.name] = draw(put_in)
    return step_type, {**definition, **copy.deepcopy(CALM.get(step_type.name, {}))}


@pytest.fixture
def lab(datp_server: LabServer, tmp_path: Path) -> Iterator[Lab]:
    with Lab(datp_server, settings=Settings(partitions=1, programs="printf"), patience_s=20) as opened:
        opened.pipeline("child", "util/echo")
        (tmp_path / "shop.sqlite").touch()
        opened.credential("shop", "database", url=f"sqlite:///{tmp_path}/shop.sqlite")
        opened._do(make_table(f"sqlite:///{tmp_path}/shop.sqlite"))
        yield opened


async def make_table(url: str) -> None:
    async with target_for(url).transaction(5_000) as work:
        await work.run(CREATE_TABLE["sqlite"], {}, 0)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=definitions(), value=json_values)
def test_a_step_ends_and_not_with_an_internal_error(lab: Lab, made: Any, value: Any) -> None:
    step_type, definition = made
    try:
        lab.pipeline("t", {"step": step_type.name, "with": definition})
    except BadRequest as error:
        assert str(error)
        return
    tx_id = lab.start("t", value)
    result = lab.finish(tx_id)
    if result.status == "waiting":
        assert step_type.name == "util/wait"  # until somebody sets the switch
        lab.cancel(tx_id)
        return
    assert result.status in FINAL
    assert result.status != "internal-error", f"{step_type.name} {definition} of {value!r}: {result.note}"
    assert result.status == "success" or result.note or step_type.name in ("util/fixed-reply", "mock/reply")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(condition=st.sampled_from(TEXTS) | st.text(max_size=20), value=json_values)
def test_a_condition_of_any_kind_ends_too(lab: Lab, condition: str, value: Any) -> None:
    try:
        lab.pipeline("t", {"step": "util/echo", "when": condition})
    except BadRequest as error:
        assert str(error)
        return
    result = lab.run("t", value)
    assert result.status in ("success", "failed")
    assert result.status == "success" or result.note.startswith("when: ")
