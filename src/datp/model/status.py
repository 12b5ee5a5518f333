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

_RUNNING: Final = frozenset({Phase.RUNNING})
_QUEUED: Final = frozenset({Phase.QUEUED})
_ENDED: Final = frozenset({Phase.COMPLETE, Phase.QUEUED})
"""By a verdict: at once where nothing has to be undone, else through the queue."""

_ENDING_BRANCH: Final[dict[Phase, frozenset[Phase]]] = {Phase.JOINING: _ENDED}
"""Whatever ends a branch may be what its parent waited for."""

_LIVE: Final = tuple(phase for phase in Phase if phase != Phase.COMPLETE)
_AT_REST: Final = tuple(phase for phase in _LIVE if phase != Phase.RUNNING)

ALLOWED_MOVES: Final[dict[str, dict[Phase, frozenset[Phase]]]] = {
    "enqueue": {},
    "dequeue": {Phase.QUEUED: frozenset({Phase.RUNNING, Phase.EXCEPTION})},
    "complete": {Phase.RUNNING: frozenset({Phase.COMPLETE}), **_ENDING_BRANCH},
    "requeue": {Phase.RUNNING: _QUEUED},
    "sleep": {Phase.RUNNING: frozenset({Phase.SLEEPING, Phase.WAITING, Phase.QUEUED})},
    "fork": {Phase.RUNNING: frozenset({Phase.JOINING})},
    "checkpoint": {Phase.RUNNING: _RUNNING},
    "report_progress": {Phase.RUNNING: _RUNNING},
    "give_back": {Phase.RUNNING: _QUEUED},
    "park": {Phase.RUNNING: frozenset({Phase.EXCEPTION})},
    "reap": {
        Phase.RUNNING: frozenset({Phase.QUEUED, Phase.EXCEPTION, Phase.RUNNING, Phase.COMPLETE}),
        **{phase: _ENDED | {Phase.EXCEPTION} for phase in _AT_REST},
        Phase.JOINING: _ENDED | {Phase.EXCEPTION, Phase.JOINING},
    },
    "cancel": {
        Phase.RUNNING: _RUNNING,
        **dict.fromkeys(_AT_REST, _ENDED),
        Phase.JOINING: _ENDED | {Phase.JOINING},
    },
    "wake": {Phase.SLEEPING: _QUEUED, Phase.WAITING: _QUEUED},
    "wake_due": {
        Phase.SLEEPING: _ENDED | {Phase.EXCEPTION},
        Phase.WAITING: _ENDED | {Phase.EXCEPTION},
        **_ENDING_BRANCH,
    },
    "restore": {
        Phase.SLEEPING: _ENDED | {Phase.SLEEPING},
        Phase.WAITING: _ENDED | {Phase.WAITING},
    },
    "adopt": {
        **{phase: frozenset(Phase) - _RUNNING for phase in _LIVE},
        Phase.COMPLETE: frozenset({Phase.COMPLETE}),
    },
    "set_switch": {
        **{phase: frozenset({phase}) for phase in _LIVE},
        Phase.WAITING: frozenset({Phase.WAITING, Phase.QUEUED}),
    },
    "retry": {Phase.EXCEPTION: _QUEUED},
    "end_parked": {Phase.EXCEPTION: frozenset({Phase.COMPLETE}), **_ENDING_BRANCH},
    "park_lost": {},
    "join_branch": _ENDING_BRANCH,
}
"""operation → phase before → phases after, of the transaction that it is told, or of a parent whose branch that is.

A phase that is not listed is refused. A final phase has no way out: SQL's newer copy of it is final too.
"""


def may_move(operation: str, before: Phase, after: Phase) -> bool:
    """Whether this operation may take a transaction from one phase to the other."""
    return after in ALLOWED_MOVES[operation].get(before, frozenset())
