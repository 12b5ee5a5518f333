"""Step types as a lab has them: mocks stand in for some, and each may meet a fault when it runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from datp.steps.context import Context
from datp.steps.contract import Callee, StepType
from datp.steps.registry import Registry
from datp.testing.faults import Fault, FaultKind, Faults
from datp.testing.mocks import Mock

Happen = Callable[[Fault, Context], Awaitable[None]]
"""What a fault does to the run that it meets."""

BEFORE: Final[tuple[FaultKind, ...]] = ("raise", "crash-before", "time-out")
AFTER: Final[tuple[FaultKind, ...]] = ("cancel", "crash-after")


class LabRegistry(Registry):
    """The step types of installed packages, and of the test; mocks go before both."""

    def __init__(self, step_types: Registry, faults: Faults, happen: Happen) -> None:
        super().__init__(step_types)
        self.mocks: dict[str, Mock] = {}
        self._faults = faults
        self._happen = happen

    def get(self, name: str) -> StepType | None:
        """The step type as it runs here."""
        real = super().get(name)
        mock = self.mocks.get(name)
        step_type = mock.as_step_type(real) if mock else real
        if step_type is None:
            return None
        return msgspec.structs.replace(
            step_type,
            run=self._exposed(name, step_type.run, undo=False),
            undo=self._exposed(name, step_type.undo, undo=True) if step_type.undo else None,
        )

    def real(self, name: str) -> StepType | None:
        """The step type for which a mock may stand in."""
        return super().get(name)

    def _exposed(self, name: str, callee: Callee, *, undo: bool) -> Callee:
        """The same code, exposed to faults."""

        async def run(**given: Any) -> Any:
            context: Context = given["context"]
            await self._meet(BEFORE, context, name, undo)
            arguments = {key: value for key, value in given.items() if key in callee.wants}
            if callee.is_async:
                outcome = await callee.function(**arguments)
            else:
                outcome = await asyncio.to_thread(_in_thread, callee.function, arguments)
            await self._meet(AFTER, context, name, undo)
            return outcome

        return msgspec.structs.replace(callee, function=run, is_async=True, wants=callee.wants | {"context"})

    async def _meet(self, kinds: tuple[FaultKind, ...], context: Context, name: str, undo: bool) -> None:
        for kind in kinds:
            fault = self._faults.due(kind, context.step_name, name, undo)
            if fault is not None:
                await self._happen(fault, context)


def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except StopIteration as error:  # a future can't carry it
        raise RuntimeError("StopIteration") from error
