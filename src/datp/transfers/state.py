"""A transfer's states, the moves that are allowed, and what a client sees of them. Pure.

    RECEIVED_PREPARE ──▶ RESERVED ──▶ RECEIVED_FULFIL ──▶ COMMITTED
          │  │  │           │  └────▶ ABORTED
          │  │  └▶ REJECTED └───────▶ EXPIRED_RESERVED
          │  └───▶ ABORTED
          └──────▶ EXPIRED_PREPARED

Pending states are named, not final ones: a state that somebody forgets is then looked at, and not leaked.
"""

from enum import StrEnum
from typing import Final

from datp.errors import BadRequest


class TransferState(StrEnum):
    RECEIVED_PREPARE = "RECEIVED_PREPARE"
    """It is known, and nothing is reserved yet."""
    RESERVED = "RESERVED"
    """The payer's position holds the amount."""
    RECEIVED_FULFIL = "RECEIVED_FULFIL"
    """The payee has confirmed. It stands in the history only: the commit is in the same SQL transaction."""
    COMMITTED = "COMMITTED"
    REJECTED = "REJECTED"
    """The payer had too little."""
    ABORTED = "ABORTED"
    FAILED = "FAILED"
    """Of histories that others write; our own transfers never get there."""
    INVALID = "INVALID"
    """What was asked for can't be; the id may be used again for a prepare that can."""
    EXPIRED_PREPARED = "EXPIRED_PREPARED"
    EXPIRED_RESERVED = "EXPIRED_RESERVED"


class ShownState(StrEnum):
    """What clients see."""

    RECEIVED = "RECEIVED"
    RESERVED = "RESERVED"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"
    EXPIRED = "EXPIRED"


_S = TransferState

PENDING: Final = frozenset({_S.RECEIVED_PREPARE, _S.RESERVED})
"""Those that a deadline ends. The index of deadlines names them too, and a test compares."""

EXPIRES_AS: Final = {_S.RECEIVED_PREPARE: _S.EXPIRED_PREPARED, _S.RESERVED: _S.EXPIRED_RESERVED}

MOVES: Final[dict[TransferState, frozenset[TransferState]]] = {
    _S.RECEIVED_PREPARE: frozenset({_S.RESERVED, _S.REJECTED, _S.ABORTED, _S.EXPIRED_PREPARED}),
    _S.RESERVED: frozenset({_S.RECEIVED_FULFIL, _S.ABORTED, _S.EXPIRED_RESERVED}),
    _S.RECEIVED_FULFIL: frozenset({_S.COMMITTED}),
    _S.COMMITTED: frozenset(),
    _S.REJECTED: frozenset(),
    _S.ABORTED: frozenset(),
    _S.FAILED: frozenset(),
    _S.INVALID: frozenset({_S.RECEIVED_PREPARE, _S.INVALID}),
    _S.EXPIRED_PREPARED: frozenset(),
    _S.EXPIRED_RESERVED: frozenset(),
}
"""What may follow what. Moving a deadline is no move: the state stays."""

FINAL: Final = frozenset(state for state, following in MOVES.items() if not following)

SHOWN_AS: Final = {
    _S.RECEIVED_PREPARE: ShownState.RECEIVED,
    _S.RESERVED: ShownState.RESERVED,
    _S.RECEIVED_FULFIL: ShownState.RESERVED,
    _S.COMMITTED: ShownState.COMMITTED,
    _S.REJECTED: ShownState.ABORTED,
    _S.ABORTED: ShownState.ABORTED,
    _S.FAILED: ShownState.ABORTED,
    _S.INVALID: ShownState.ABORTED,
    _S.EXPIRED_PREPARED: ShownState.EXPIRED,
    _S.EXPIRED_RESERVED: ShownState.EXPIRED,
}


class TransferCode(StrEnum):
    """Why a transfer was refused or ended, as its schemes name it. Texts, not numbers."""

    VALIDATION = "3100"
    """The request is wrong, or the transfer is in a state that doesn't allow it."""
    MODIFIED = "3106"
    """The id is taken by a different request."""
    UNKNOWN = "3208"
    EXPIRED = "3303"
    LIQUIDITY = "4001"
    """The payer has too little."""
    LIMIT = "4200"
    """The payer's net debit cap."""


TEXTS: Final = {
    TransferCode.VALIDATION: "Validation error",
    TransferCode.MODIFIED: "Modified request",
    TransferCode.UNKNOWN: "Transfer ID not found",
    TransferCode.EXPIRED: "Transfer expired",
    TransferCode.LIQUIDITY: "Payer has insufficient liquidity",
    TransferCode.LIMIT: "Payer's net debit cap exceeded",
}


def states_shown_as(shown_state: str) -> list[TransferState]:
    """The states that a client sees as this one; every state for ''. Raises BadRequest."""
    if shown_state and shown_state not in list(ShownState):
        raise BadRequest(f"{shown_state!r} is not a state: {', '.join(ShownState)}", field="state")
    return [state for state, says in SHOWN_AS.items() if shown_state in ("", says)]
