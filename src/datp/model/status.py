"""Statuses that clients see, phases that say where a transaction is, and the table of allowed moves.

A *status* is what a client is told. A *phase* is the one place where a live transaction is at rest (the mode table
of the seeds). An *operation* is a script: the table says from which phase it may take a transaction to which.
"""

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SLEEPING = "sleeping"
    WAITING = "waiting"
    SUCCESS = "success"
    FAILED = "failed"
    ABORTED = "aborted"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    INTERNAL_ERROR = "internal-error"


FINAL: Final = frozenset(
    {
        Status.SUCCESS,
        Status.FAILED,
        Status.ABORTED,
        Status.CANCELLED,
        Status.TIMEOUT,
        Status.INTERNAL_ERROR,
    }
)

UNDONE: Final = frozenset({Status.FAILED, Status.TIMEOUT, Status.CANCELLED})
"""Final statuses before which the completed steps are undone; `aborted` and `internal-error` leave them."""


class Phase(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SLEEPING = "sleeping"
    WAITING = "waiting"
    JOINING = "joining"
    EXCEPTION = "exception"
    COMPLETE = "complete"


STATUS_OF_PHASE: Final[dict[Phase, Status]] = {
    Phase.QUEUED: Status.QUEUED,
    Phase.RUNNING: Status.RUNNING,
    Phase.SLEEPING: Status.SLEEPING,
    Phase.WAITING: Status.WAITING,
    Phase.JOINING: Status.WAITING,
    Phase.EXCEPTION: Status.WAITING,
}
"""What a client sees of a live transaction; a complete one has its own final status."""

_RUNNING_TO: Final = frozenset({Phase.RUNNING})
_AT_REST: Final = frozenset({Phase.QUEUED, Phase.SLEEPING, Phase.WAITING, Phase.JOINING, Phase.EXCEPTION})

ALLOWED_MOVES: Final[dict[str, dict[Phase, frozenset[Phase]]]] = {
    "enqueue": {},
    "dequeue": {Phase.QUEUED: _RUNNING_TO},
    "complete": {Phase.RUNNING: frozenset({Phase.COMPLETE})},
    "requeue": {Phase.RUNNING: frozenset({Phase.QUEUED})},
    "sleep": {Phase.RUNNING: frozenset({Phase.SLEEPING, Phase.WAITING, Phase.QUEUED})},
    "fork": {Phase.RUNNING: frozenset({Phase.JOINING})},
    "checkpoint": {Phase.RUNNING: _RUNNING_TO},
    "report_progress": {Phase.RUNNING: _RUNNING_TO},
    "give_back": {Phase.RUNNING: frozenset({Phase.QUEUED})},
    "park": {Phase.RUNNING: frozenset({Phase.EXCEPTION})},
    "reap": {
        Phase.RUNNING: frozenset({Phase.QUEUED, Phase.EXCEPTION, Phase.RUNNING, Phase.COMPLETE}),
        **{phase: frozenset({Phase.COMPLETE, Phase.QUEUED, Phase.JOINING}) for phase in _AT_REST},
    },
    "cancel": {
        Phase.RUNNING: frozenset({Phase.RUNNING}),
        **{phase: frozenset({Phase.COMPLETE, Phase.QUEUED, Phase.JOINING}) for phase in _AT_REST},
    },
    "wake": {
        Phase.SLEEPING: frozenset({Phase.QUEUED}),
        Phase.WAITING: frozenset({Phase.QUEUED}),
    },
    "wake_due": {
        Phase.SLEEPING: frozenset({Phase.QUEUED, Phase.COMPLETE}),
        Phase.WAITING: frozenset({Phase.QUEUED, Phase.COMPLETE}),
    },
    "set_switch": {
        Phase.WAITING: frozenset({Phase.WAITING, Phase.QUEUED}),
        **{phase: frozenset({phase}) for phase in Phase if phase not in {Phase.WAITING, Phase.COMPLETE}},
    },
    "retry": {Phase.EXCEPTION: frozenset({Phase.QUEUED})},
    "end_parked": {Phase.EXCEPTION: frozenset({Phase.COMPLETE})},
}
"""operation → phase before → phases after; a phase that is not listed is refused."""


def may_move(operation: str, before: Phase, after: Phase) -> bool:
    """Whether this operation may take a transaction from one phase to the other."""
    return after in ALLOWED_MOVES[operation].get(before, frozenset())
