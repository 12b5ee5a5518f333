"""What a test wants to go wrong, and where."""

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["raise", "crash-before", "crash-after", "time-out", "cancel"]


@dataclass
class Fault:
    """Something that goes wrong when a step runs, so many times."""

    kind: FaultKind
    step: str
    """A step's id, or a step type."""
    times: int
    error: BaseException | None = None
    undo: bool = False
    """In its undo, instead of its run."""

    def meets(self, kind: FaultKind, step: str, step_type: str, undo: bool) -> bool:
        return self.times > 0 and kind == self.kind and undo == self.undo and self.step in (step, step_type)


class Faults:
    """What is still to go wrong."""

    def __init__(self) -> None:
        self._of_steps: list[Fault] = []
        self._lost_replies: dict[str, int] = {}

    def add(self, fault: Fault) -> None:
        self._of_steps.append(fault)

    def lose_reply(self, call: str, times: int) -> None:
        self._lost_replies[call] = self._lost_replies.get(call, 0) + times

    def due(self, kind: FaultKind, step: str, step_type: str, undo: bool) -> Fault | None:
        """The fault that meets this run; it has happened once more."""
        for fault in self._of_steps:
            if fault.meets(kind, step, step_type, undo):
                fault.times -= 1
                return fault
        return None

    def loses_reply(self, calls: list[str]) -> bool:
        """Whether the reply to a turn with these calls is lost."""
        for call in calls:
            if self._lost_replies.get(call, 0) > 0:
                self._lost_replies[call] -= 1
                return True
        return False

    def left(self) -> list[str]:
        """What was to go wrong, and has not."""
        steps = [f"{fault.kind} in {fault.step}" for fault in self._of_steps if fault.times > 0]
        return steps + [f"the reply to {call} lost" for call, times in self._lost_replies.items() if times > 0]
