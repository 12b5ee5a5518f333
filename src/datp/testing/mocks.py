"""Mocks: what stands in for a step type, and remembers how it was called."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from datp.steps.context import Context
from datp.steps.contract import Callee, StepType

_NOTHING_SAID: tuple[Any, ...] = (None,)


@dataclass(frozen=True)
class Call:
    """How a step type was called."""

    step: str
    """The step's id in its pipeline."""
    input: Any
    definition: dict[str, Any]
    tx_id: str
    idempotency_key: str
    attempt: int
    output: Any = None
    """Of an undo: what the step had returned."""


@dataclass
class Mock:
    """A step type that does what a test says.

    Each run takes the next outcome, and the last one stays: an output, an outcome of the step contract (`Failed(…)`),
    an exception, which is raised, or a function, which is called like a step. Without any, the input is passed on.
    """

    step_type: str
    outcomes: Sequence[Any] = ()
    calls: list[Call] = field(default_factory=list)
    """Its runs, in order."""
    undone: list[Call] = field(default_factory=list)
    """The runs of its undo, in order."""

    async def run(self, context: Context, input: Any, definition: dict[str, Any]) -> Any:
        self.calls.append(_call(context, input, definition))
        said = self.outcomes or _NOTHING_SAID
        outcome = said[min(len(self.calls), len(said)) - 1]
        return await _come_to(outcome, context=context, input=input, definition=definition)

    async def undo(self, context: Context, input: Any, definition: dict[str, Any], output: Any) -> None:
        self.undone.append(_call(context, input, definition, output))

    def as_step_type(self, real: StepType | None) -> StepType:
        """What is registered instead; it can be undone if the real one can, or if there is none."""
        undo = _callee(self.undo) if real is None or real.undo is not None else None
        description = real.description if real else "a mock"
        return StepType(self.step_type, description, _callee(self.run), undo)


def _call(context: Context, input: Any, definition: dict[str, Any], output: Any = None) -> Call:
    return Call(context.step_name, input, definition, context.tx_id, context.idempotency_key, context.attempt, output)


def _callee(function: Any) -> Callee:
    return Callee(function, True, frozenset(inspect.signature(function).parameters))


async def _come_to(outcome: Any, **given: Any) -> Any:
    if isinstance(outcome, BaseException) or (isinstance(outcome, type) and issubclass(outcome, BaseException)):
        raise outcome
    if not callable(outcome):
        return outcome
    wanted = inspect.signature(outcome).parameters
    result = outcome(**{name: value for name, value in given.items() if name in wanted})
    return await result if inspect.isawaitable(result) else result
