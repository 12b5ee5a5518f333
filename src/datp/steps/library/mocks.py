"""Steps for trying things out: a reply that depends on the input, a step that takes long, one that fails by chance."""

import asyncio
import random
from typing import Annotated, Any, Final

import msgspec

from datp.model.expressions import as_text, check_templates, parse_expression, render
from datp.model.outcome import Outcome
from datp.model.pipeline import Duration, duration_ms
from datp.model.values import shown
from datp.steps.context import Context
from datp.steps.contract import Example, step
from datp.steps.definition import Definition, ExpressionText, TemplateJson, says
from datp.steps.library.replies import EndStatus, ended

REPORTS_MAX: Final = 20
"""Of a step that takes long."""


class MockedReply(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What one case comes to."""

    status: EndStatus = "success"
    reply: Any = None
    note: str = ""


class MockReplyDefinition(Definition):
    by: Annotated[ExpressionText, says("what decides, such as `input.instruction`")]
    cases: Annotated[dict[str, MockedReply], says("by what it comes to, each `{status, reply, note}`")]
    otherwise: Annotated[MockedReply | None, says("for anything else; nothing: the step fails")] = None

    def check(self) -> None:
        for case in (*self.cases.values(), *([self.otherwise] if self.otherwise else [])):
            check_templates(case.reply, "reply")


class SlowDefinition(Definition):
    duration: Annotated[Duration, says("how long it takes")] = "10s"


class UnsteadyDefinition(Definition):
    chance: Annotated[float, msgspec.Meta(ge=0, le=1), says("of a failure, from 0 to 1")] = 0.5
    raises: Annotated[bool, says("it raises, as code with a mistake does, instead of ending failed")] = False
    reply: Annotated[TemplateJson, says("its output otherwise; without it, the input is passed on")] = msgspec.UNSET


@step(
    "mock/reply",
    default_definition={
        "by": "input.instruction",
        "cases": {"fail": {"status": "failed"}, "abort": {"status": "aborted"}},
        "otherwise": {"reply": {"foo": "bar"}},
    },
    examples=[
        Example(
            "A back end that isn't there yet.",
            {
                "by": "input.sku",
                "cases": {"pen": {"reply": {"price": "1.20"}}, "ink": {"status": "failed", "note": "sold out"}},
                "otherwise": {"reply": {"price": "9.99", "sku": "${input.sku}"}},
            },
            input={"sku": "desk"},
            output={"price": "9.99", "sku": "desk"},
        )
    ],
)
async def mock_reply(context: Context, definition: MockReplyDefinition) -> Outcome:
    """Stands in for a step that isn't there yet: what it ends with depends on the input.

    For test cases, a mock of a step type (`mocks` of the test case) leaves the pipeline as it is.
    """
    scope = context.scope
    found = as_text(parse_expression(definition.by, "by").value(scope))
    case = definition.cases.get(found, definition.otherwise)
    if case is None:
        note = f"there is no case for {shown(found)}"
        return ended("failed", {"error": note}, note)
    return ended(case.status, render(case.reply, scope), case.note)


@step(
    "mock/slow",
    default_definition={"duration": "2m"},
    examples=[Example("Something that takes its time.", {"duration": "20ms"}, input=1, output=1)],
)
async def slow(context: Context, definition: SlowDefinition) -> None:
    """Holds a worker slot for a while, and tells how far it is: something to cancel, or to kill its node under.

    It is what a step's time-out is tried on too. To wait without holding anything: `util/delay`.
    """
    whole_ms = duration_ms(definition.duration, "duration")
    for done in range(REPORTS_MAX):
        context.report_progress({"done": done, "of": REPORTS_MAX})
        await asyncio.sleep(whole_ms / REPORTS_MAX / 1000)


@step(
    "mock/unsteady",
    default_definition={"chance": 0.5},
    examples=[Example("One that never fails.", {"chance": 0, "reply": {"done": True}}, output={"done": True})],
)
async def unsteady(context: Context, definition: UnsteadyDefinition) -> Outcome | None:
    """Fails by chance: what retries, undo and alarms are tried on."""
    if random.random() < definition.chance:
        if definition.raises:
            raise RuntimeError("this time it went wrong")
        return ended("failed", {"error": "this time it went wrong"}, "this time it went wrong")
    if definition.reply is msgspec.UNSET:
        return None
    return ended("success", render(definition.reply, context.scope), "")
