"""Steps that say what comes out: a fixed reply, an echo, a condition that must hold."""

from typing import Annotated, Any, Literal

import msgspec

from datp.model.expressions import parse_expression, render
from datp.model.outcome import Aborted, Failed, Outcome, Success
from datp.steps.context import Context
from datp.steps.contract import Example, step
from datp.steps.definition import Definition, ExpressionText, TemplateJson, TemplateText, says

EndStatus = Literal["success", "failed", "aborted"]


def ended(status: EndStatus, output: Any, note: str) -> Outcome:
    """The outcome of this status."""
    match status:
        case "success":
            return Success(output, note)
        case "aborted":
            return Aborted(output, note)
        case "failed":
            return Failed(output, note)


class FixedReplyDefinition(Definition):
    status: Annotated[EndStatus, says("how the step ends")] = "success"
    reply: Annotated[TemplateJson, says("its output; texts may hold expressions")] = None
    note: Annotated[TemplateText, says("a sentence for people")] = ""


class RequireDefinition(Definition):
    condition: Annotated[ExpressionText, says("what must come to something: not false, null or empty")]
    status: Annotated[Literal["failed", "aborted"], says("how the step ends otherwise")] = "failed"
    reply: Annotated[TemplateJson, says("its output then; texts may hold expressions")] = msgspec.UNSET
    note: Annotated[TemplateText, says("a sentence for people, then")] = ""


@step(
    "util/fixed-reply",
    default_definition={"status": "success", "reply": {"ok": True}},
    examples=[
        Example(
            "A reply with something of the input in it.",
            {"reply": {"greeting": "Hello, ${input.name}!", "items": "${length(input.items)}"}},
            input={"name": "Ada", "items": [1, 2]},
            output={"greeting": "Hello, Ada!", "items": 2},
        ),
        Example(
            "A pipeline that is closed: nothing is undone.",
            {"status": "aborted", "reply": {"error": "closed"}, "note": "we are closed"},
            output={"error": "closed"},
            status="aborted",
        ),
    ],
)
async def fixed_reply(context: Context, definition: FixedReplyDefinition) -> Outcome:
    """Ends as its definition says: success, failed or aborted."""
    scope = context.scope
    return ended(definition.status, render(definition.reply, scope), str(render(definition.note, scope)))


@step("util/echo", examples=[Example("Whatever comes in goes out.", input={"a": [1, 2]}, output={"a": [1, 2]})])
async def echo(input: Any) -> Any:
    """Returns its input."""
    return Success(input)


@step(
    "util/require",
    default_definition={"condition": "input.amount > `0`", "note": "the amount must be positive"},
    examples=[
        Example(
            "An order must have items.",
            {"condition": "length(input.items) > `0`", "note": "order ${input.id} has no items"},
            input={"id": 7, "items": []},
            output={"error": "order 7 has no items"},
            status="failed",
        ),
        Example(
            "If the condition holds, the input is passed on.",
            {"condition": "input.country == 'PH' || input.country == 'TH'"},
            input={"country": "PH"},
            output={"country": "PH"},
        ),
    ],
)
async def require(context: Context, definition: RequireDefinition) -> Outcome | None:
    """Goes on only if a condition holds; else it ends failed or aborted, with a sentence.

    To skip a single step instead, give that step a condition: `when: <expression>`.
    """
    scope = context.scope
    if parse_expression(definition.condition, "condition").is_true(scope):
        return None
    note = str(render(definition.note, scope) or f"it does not hold that {definition.condition}")
    reply = {"error": note} if definition.reply is msgspec.UNSET else render(definition.reply, scope)
    return ended(definition.status, reply, note)
