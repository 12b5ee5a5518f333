"""Steps that tell: the client how far it is, whoever waits for a switch, the log."""

from typing import Annotated, Literal

from datp.errors import BadSwitch
from datp.model.expressions import as_text, render
from datp.model.limits import Limits
from datp.model.log_level import PYTHONS, LogLevel
from datp.model.switches import check_switch_name
from datp.model.values import printable
from datp.steps.context import Context
from datp.steps.contract import Example, step
from datp.steps.definition import Definition, TemplateJson, TemplateText, says


class ProgressDefinition(Definition):
    progress_report: Annotated[TemplateJson, says("what the client is told; texts may hold expressions")]


class SetSwitchDefinition(Definition):
    switch: Annotated[str, says("the switch's name")]
    value: Annotated[
        TemplateJson, says("true or false, a number, a text of at most 32 characters, or null, which deletes it")
    ] = None

    def check(self) -> None:
        check_switch_name(self.switch, Limits())
        if isinstance(self.value, list | dict):
            raise BadSwitch("a switch holds true or false, a number or a short text; this is no such value")


class LogDefinition(Definition):
    message: Annotated[TemplateText, says("the line; it may hold expressions")]
    level: Annotated[Literal["trace", "debug", "info", "warning", "error", "fatal"], says("how much it matters")] = (
        "info"
    )


@step(
    "util/progress",
    default_definition={"progressReport": {"done": 1, "of": 2}},
    examples=[
        Example(
            "Tell the client how far it is.",
            {"progressReport": {"stage": "packing", "items": "${length(input.items)}"}},
            input={"items": ["pen"]},
            output={"items": ["pen"]},
        )
    ],
)
async def progress(context: Context, definition: ProgressDefinition) -> None:
    """Tells the client how far it is.

    A report replaces the last one; one that is the same changes nothing. Who waits, or has asked for webhooks of
    progress, is told at once.
    """
    context.report_progress(render(definition.progress_report, context.scope))


@step(
    "util/set-switch",
    default_definition={"switch": "ready", "value": True},
    examples=[
        Example("Raise a flag.", {"switch": "ready", "value": True}, input=1, output=1),
        Example("Remember a word of the input.", {"switch": "color", "value": "${input.color}"}, {"color": "red"}),
    ],
)
async def set_switch(context: Context, definition: SetSwitchDefinition) -> None:
    """Sets a switch of this transaction."""
    await context.set_switch(definition.switch, render(definition.value, context.scope))


@step(
    "util/log",
    default_definition={"message": "${tx.id} is here"},
    examples=[Example("A line in the log.", {"message": "order ${input.id} of ${tx.owner}"}, {"id": 7}, {"id": 7})],
)
async def log(context: Context, definition: LogDefinition) -> None:
    """Writes a line to the transaction's logbook, and to the node's log."""
    message = as_text(render(definition.message, context.scope))
    context.log.log(PYTHONS[LogLevel[definition.level.upper()]], "%s: %s", context.tx_id, printable(message))
