"""Step types that come with the engine: small ones, of which pipelines are made without writing code."""

from typing import Any

import msgspec

from datp.model.outcome import Aborted, Failed, Outcome, RetryLater, Success, WaitForSwitch
from datp.model.pipeline import Duration, duration_ms
from datp.model.switches import SwitchValue
from datp.steps.context import Context
from datp.steps.contract import step


class DelayDefinition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    duration: Duration = "1s"


class WaitDefinition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    switch: str
    timeout: Duration | None = None
    on_timeout: str = "failed"


class FixedReplyDefinition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    status: str = "success"
    reply: Any = None
    note: str = ""


class ProgressDefinition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    progress_report: Any


class SetSwitchDefinition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    switch: str
    value: SwitchValue | None = None


class LogDefinition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    message: str


@step("util/delay", default_definition={"duration": "1s"})
async def delay(context: Context, definition: DelayDefinition) -> Outcome | None:
    """Goes on after a while; no worker is held meanwhile."""
    if context.woken_by:  # by time, or by an operator who wants it to go on
        return None
    return RetryLater(duration_ms(definition.duration, "duration"))


@step("util/wait", default_definition={"switch": "approved", "timeout": "1h"})
async def wait(context: Context, definition: WaitDefinition) -> Outcome | None:
    """Goes on when the switch has a true value; may give up after a time."""
    if context.switch(definition.switch):
        return None
    if context.woken_by == "time" and definition.timeout is not None:
        note = f"the switch {definition.switch} was not set in time"
        return Aborted(note=note) if definition.on_timeout == "aborted" else Failed(note=note)
    timeout_ms = None if definition.timeout is None else duration_ms(definition.timeout, "timeout")
    return WaitForSwitch(definition.switch, timeout_ms, note=f"waits for the switch {definition.switch}")


@step("util/fixed-reply", default_definition={"status": "success", "reply": {"ok": True}})
async def fixed_reply(definition: FixedReplyDefinition) -> Outcome:
    """Ends as its definition says: success, failed or aborted."""
    match definition.status:
        case "success":
            return Success(definition.reply, definition.note)
        case "aborted":
            return Aborted(definition.reply, definition.note)
        case _:
            return Failed(definition.reply, definition.note)


@step("util/progress", default_definition={"progressReport": {"done": 1, "of": 2}})
async def progress(context: Context, definition: ProgressDefinition) -> None:
    """Tells the client how far it is."""
    context.report_progress(definition.progress_report)


@step("util/set-switch", default_definition={"switch": "ready", "value": True})
async def set_switch(context: Context, definition: SetSwitchDefinition) -> None:
    """Sets a switch of this transaction."""
    await context.set_switch(definition.switch, definition.value)


@step("util/log", default_definition={"message": "here"})
async def log(context: Context, definition: LogDefinition) -> None:
    """Writes a line to the node's log."""
    context.log.info("%s: %s", context.tx_id, definition.message)


@step("util/echo")
async def echo(input: Any) -> Any:
    """Returns its input."""
    return Success(input)
