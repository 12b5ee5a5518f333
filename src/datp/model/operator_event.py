"""What operators are told: what has happened, to which thing, since when and how often."""

from enum import StrEnum
from hashlib import sha1

import msgspec


class EventCode(StrEnum):
    """What has happened, as a word that does not change."""

    TRANSACTION_PARKED = "transaction-parked"
    """Transactions of this type went to the exception list; see `datp exceptions`."""
    WEBHOOK_GIVEN_UP = "webhook-given-up"
    """A delivery used up its tries; it can be resent."""
    WEBHOOK_PAUSED = "webhook-paused"
    """Too many deliveries to this receiver failed: none are sent for a while (the breaker opened)."""
    WEBHOOK_RESUMED = "webhook-resumed"
    """A delivery to a paused receiver succeeded: they are sent again (the breaker closed)."""
    DATABASE_DOWN = "database-down"
    """The archive's database can't be reached; nothing is lost, and what is to be archived waits in memory."""
    ARCHIVE_REFUSED = "archive-refused"
    """The database doesn't take a state; it was set aside, stays in memory and is tried again."""
    STORE_DOWN = "store-down"
    """The hot store can't be reached; nothing runs until it can."""
    STORE_LOST = "store-lost"
    """The hot store is not the one that nodes know: they have stopped. It was lost, or replaced by an older copy."""
    ROLE_MISSING = "role-missing"
    """No live node has this role, so its work waits."""
    CLOCK_SKEW = "clock-skew"
    """A machine's clock and the store's differ; the store's decides, but the machine's logs have the wrong time."""
    MEMORY_FULL = "memory-full"
    """The memory budget of a store's server is used up: nothing new starts until something has left memory."""

    AUDIT_UNWRITTEN = "audit-unwritten"
    """The audit log could not be written: the event, and the process's own log, say what was done."""


class OperatorEvent(msgspec.Struct, frozen=True, rename="camel"):
    """A code and a subject are one event: what happens again is counted."""

    id: str
    code: str
    subject: str
    text: str
    """A sentence, of the last time."""
    first_at: int
    last_at: int
    count: int
    acknowledged_at: int | None = None
    acknowledged_by: str = ""


def event_id(code: str, subject: str) -> str:
    """The id of the event; scripts make the same."""
    return sha1(f"{code}\n{subject}".encode()).hexdigest()[:16]
