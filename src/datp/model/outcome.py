"""What a step may end with. A step returns its output, or one of these; it completes exactly once, by returning."""

from typing import Any

import msgspec

from datp.model.status import Status


class Success(msgspec.Struct, frozen=True):
    """The step did its work. Returning anything that is not an outcome means Success with that output."""

    output: Any = None
    note: str = ""


class Failed(msgspec.Struct, frozen=True):
    """The step's work can't be done; what was done before it is undone, and the transaction ends `failed`."""

    output: Any = None
    note: str = ""


class Aborted(msgspec.Struct, frozen=True):
    """The transaction ends here, `aborted`, and what was done stays as it is."""

    output: Any = None
    note: str = ""


class RetryLater(msgspec.Struct, frozen=True):
    """Run this step again, from its top, after a while (None: as its back-off says)."""

    after_ms: int | None = None
    note: str = ""


class WaitForSwitch(msgspec.Struct, frozen=True):
    """Run this step again when the switch changes from what the step has seen, or when the time is out."""

    switch: str
    timeout_ms: int | None = None
    note: str = ""


class RunPipeline(msgspec.Struct, frozen=True):
    """Go on with a child pipeline; its status and output become this step's."""

    name: str
    input: Any = msgspec.UNSET
    """UNSET: the step's own input."""


class Branch(msgspec.Struct, frozen=True):
    """One branch of Parallel."""

    pipeline: str
    input: Any = msgspec.UNSET


class Parallel(msgspec.Struct, frozen=True):
    """Go on with branches side by side; the output is the list of their replies, in the order given here."""

    branches: list[Branch]
    join: str | int = "all"
    again: bool = False
    """Run this step again when they have ended, whatever they came to: it finds that in `context.joined`."""
    saved: Any = msgspec.UNSET
    """What the step keeps for that run; it finds it in `context.saved`."""


Outcome = Success | Failed | Aborted | RetryLater | WaitForSwitch | RunPipeline | Parallel
"""What a step may return."""


class Ended(msgspec.Struct, frozen=True):
    """How a run of a step ended, as next_move takes it: the status is final for the step, its values are encoded."""

    status: Status
    output: bytes = b""
    """JSON; empty: the input is passed on."""
    note: str = ""
    retryable: bool = False
    """Its retry policy may take it back: it raised, or ran out of time."""
    undoable: bool = False
    """It succeeded, and its step type or definition says how to undo it."""


class Sleeps(msgspec.Struct, frozen=True):
    """The step wants to be run again later, or when a switch changes."""

    wake_in_ms: int | None
    switch: str = ""
    seen: str = ""
    """The switch's version that the step saw."""
    note: str = ""


class Calls(msgspec.Struct, frozen=True):
    """The step goes on with a child pipeline, whose version has been decided."""

    pipeline: Any
    """PinnedPipeline"""
    input: bytes = b""
    """JSON; empty: the step's own input."""


class Forks(msgspec.Struct, frozen=True):
    """The step goes on with branches, whose versions have been decided."""

    branches: list[tuple[Any, bytes]]
    """PinnedPipeline and JSON input (empty: the step's own) of each."""
    need: int
    join: str
    again: bool = False
    """The step runs again when they have ended."""
    saved: bytes = b""
    """JSON that it keeps until then; empty: nothing new."""


class Poisoned(msgspec.Struct, frozen=True):
    """The step can't be run here at all: an operator has to look."""

    reason: str


RunResult = Ended | Sleeps | Calls | Forks | Poisoned
"""What a run of a step comes to."""
