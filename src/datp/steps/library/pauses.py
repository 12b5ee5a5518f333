"""Steps that stand still: for a time, or until a switch is set. No worker is held, however short it is."""

import random
from typing import Annotated, Literal

from datp.errors import BadDefinition
from datp.model.expressions import parse_expression
from datp.model.limits import Limits
from datp.model.outcome import Aborted, Failed, Outcome, RetryLater, WaitForSwitch
from datp.model.pipeline import Duration, duration_ms
from datp.model.switches import check_switch_name
from datp.steps.context import Context
from datp.steps.contract import Example, step
from datp.steps.definition import Definition, ExpressionText, says


class DelayDefinition(Definition):
    duration: Annotated[Duration, says("how long")] = "1s"
    up_to: Annotated[Duration | None, says("if given: any time from `duration` to this, by chance")] = None
    expression: Annotated[
        ExpressionText, says("if it comes to something, that is the duration: milliseconds, or a text such as 5m")
    ] = ""

    def check(self) -> None:
        if self.up_to is not None and duration_ms(self.up_to, "upTo") < duration_ms(self.duration, "duration"):
            raise BadDefinition("upTo is shorter than duration", field="upTo")


class WaitDefinition(Definition):
    switch: Annotated[str, says("the switch's name")]
    timeout: Annotated[Duration | None, says("how long it waits; nothing: as long as the transaction may take")] = None
    on_timeout: Annotated[
        Literal["failed", "aborted", "success"], says("how the step ends when the time is out", label="After time-out")
    ] = "failed"

    def check(self) -> None:
        check_switch_name(self.switch, Limits())


@step(
    "util/delay",
    default_definition={"duration": "1s"},
    examples=[
        Example("A pause.", {"duration": "50ms"}, input={"a": 1}, output={"a": 1}),
        Example(
            "As long as the request says, or a time between 10 and 20 ms.",
            {"duration": "10ms", "upTo": "20ms", "expression": "input.delay"},
            input={"delay": "30ms"},
            output={"delay": "30ms"},
        ),
    ],
)
async def delay(context: Context, definition: DelayDefinition) -> Outcome | None:
    """Goes on after a while; no worker is held meanwhile.

    Short ones too: the transaction sleeps in the store, and leaves memory if it sleeps long.
    """
    if context.woken_by:  # by time, or by an operator who wants it to go on
        return None
    wait_ms = duration_ms(definition.duration, "duration")
    if definition.up_to is not None:
        wait_ms = random.randint(wait_ms, duration_ms(definition.up_to, "upTo"))
    if definition.expression:
        asked = parse_expression(definition.expression, "expression").value(context.scope)
        if asked is not None:
            wait_ms = duration_ms(round(asked) if isinstance(asked, float) else asked, "the delay that is asked for")
    return RetryLater(wait_ms)


@step(
    "util/wait",
    default_definition={"switch": "approved", "timeout": "1h"},
    examples=[
        Example(
            "Somebody has to approve.",
            {"switch": "approved"},
            input={"order": 7},
            output={"order": 7},
            switches={"approved": True},
        ),
        Example(
            "Nobody does, in time.",
            {"switch": "approved", "timeout": "1d"},
            output=None,
            status="failed",
        ),
    ],
)
async def wait(context: Context, definition: WaitDefinition) -> Outcome | None:
    """Goes on when the switch has a true value; may give up after a time.

    A switch is set from outside (`PUT /v1/transactions/{txId}/switches/{name}`, `datp switch`) or by another step. One
    that was set before the step begins counts; one that changes between the look and the wait is not missed.
    """
    if context.switch(definition.switch):
        return None
    if context.woken_by == "time" and definition.timeout is not None:
        if definition.on_timeout == "success":
            return None
        note = f"the switch {definition.switch} was not set in time"
        return Aborted(note=note) if definition.on_timeout == "aborted" else Failed(note=note)
    timeout_ms = None if definition.timeout is None else duration_ms(definition.timeout, "timeout")
    return WaitForSwitch(definition.switch, timeout_ms, note=f"waits for the switch {definition.switch}")
