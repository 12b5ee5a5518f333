"""Every shipped step type has a description, a form, a default and an example; and the examples do what they say."""

from typing import Final

import jsonschema_rs
import msgspec
import pytest
from shipped_types import NAMES, STEP_TYPES

from datp.steps.contract import Example, StepType
from datp.steps.definition import Definition
from datp.testing import Lab

EXAMPLES: Final = [(step_type, example) for step_type in STEP_TYPES for example in step_type.examples]

NEED_MORE: Final = {"http/call", "program/run", "sql/run"}
"""Their examples talk to others: a server, a database, a program. They are run where those are."""


def run_example(lab: Lab, step_type: StepType, example: Example) -> None:
    """The example does what it says."""
    lab.push(*example.pipelines)
    lab.pipeline("example", {"step": step_type.name, "with": example.definition})
    result = lab.run("example", example.input, switches=example.switches)
    assert (result.status, result.note if result.status != example.status else "") == (example.status, "")
    if example.output is not msgspec.UNSET:
        assert result.output == example.output


@pytest.mark.parametrize(
    ("step_type", "example"),
    [pair for pair in EXAMPLES if pair[0].name not in NEED_MORE],
    ids=lambda one: getattr(one, "name", "") or one.says,
)
def test_an_example_does_what_it_says(datp: Lab, step_type: StepType, example: Example) -> None:
    run_example(datp, step_type, example)


@pytest.mark.parametrize("step_type", STEP_TYPES, ids=NAMES)
def test_a_step_type_says_what_it_does_and_how_it_is_used(step_type: StepType) -> None:
    assert step_type.description.endswith((".", ":"))
    assert step_type.examples
    assert all(example.says.endswith(".") for example in step_type.examples)
    step_type.check_definition(step_type.default_definition)
    schema = step_type.definition_schema
    assert schema["type"] == "object"
    form = step_type.form
    assert [field.name for field in form] == list(schema.get("properties", {}))
    assert all(field.help and field.label for field in form)
    assert all(field.options for field in form if field.kind == "select")
    assert all(field.required or field.default is None or field.default in field.options
               for field in form if field.kind == "select")  # fmt: skip
    wanted = step_type.run.definition_type
    assert "definition" not in step_type.run.wants or issubclass(wanted, Definition)


@pytest.mark.parametrize("step_type", STEP_TYPES, ids=NAMES)
def test_the_schema_takes_what_the_check_takes(step_type: StepType) -> None:
    schema = jsonschema_rs.validator_for(step_type.definition_schema)
    for definition in (step_type.default_definition, *(example.definition for example in step_type.examples)):
        schema.validate(definition)
        step_type.check_definition(definition)
    if step_type.form:
        assert not schema.is_valid({**step_type.default_definition, "nobodyKnowsIt": 1})
