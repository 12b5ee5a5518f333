"""What the client sends and is told, typed. What a later version says beside it is left out."""

from datetime import datetime
from typing import Any

import msgspec

from datp.model.status import FINAL, Status


class Start(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A transaction that is to be started."""

    transaction_type: str
    input: Any = None
    external_id: str | None = None
    """Your own id for it: started again with the same id and request, it is the same transaction."""
    metadata: dict[str, Any] = {}
    """`webhook`, `progressReports`, `lang`, …, and anything of your own."""
    deadline: str | int | None = None
    """How long it may take in all: `10m`, or milliseconds."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A transaction, as it was when it was asked for."""

    tx_id: str
    owner: str
    external_id: str | None
    transaction_type: str
    pipeline_version: str
    status: Status
    undoing: bool = False
    """It will end `failed`, `timeout` or `cancelled`, and undoes what was done."""
    progress_report: Any
    """What it last said of its progress; None before it said anything."""
    output: Any = msgspec.field(name="transactionOutput")
    """What it came to; None while it is live."""
    note: str | None
    start_time: datetime
    last_updated: datetime
    completion_time: datetime | None
    sequence: int
    """Grows with every change that a client can see."""

    @property
    def is_final(self) -> bool:
        """It has ended; nothing of it will change any more."""
        return self.status in FINAL


class Listed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of the list."""

    tx_id: str
    status: Status
    transaction_type: str
    node_group: str
    owner: str
    external_id: str | None
    note: str | None
    start_time: datetime
    last_updated: datetime
    completion_time: datetime | None
    sequence: int
    wake_time: datetime | None = None
    wake_switch: str | None = None


class Page(msgspec.Struct, frozen=True, rename="camel"):
    """A page of the list."""

    transactions: list[Listed]
    next_cursor: str | None


class Flow(msgspec.Struct, frozen=True, rename="camel"):
    """Every step of a transaction, as it ran."""

    tx_id: str
    sequence: int
    steps: dict[str, Any]
    flow: list[dict[str, Any]]


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a transaction."""

    type: str
    """`transaction.status`, `transaction.progress`, or at the end `transaction.completed`."""
    reply: Reply


class TransactionType(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What may be started."""

    name: str
    description: str
    version: str
    deadline_ms: int | None = None
    input_schema: Any = None
    """JSON Schema; None: anything."""


class TransactionTypes(msgspec.Struct, frozen=True, rename="camel"):
    """All of them."""

    transaction_types: list[TransactionType]


class Switches(msgspec.Struct, frozen=True, rename="camel"):
    """The switches of a transaction."""

    switches: dict[str, bool | int | float | str]


class Problem(msgspec.Struct, frozen=True):
    """Why something was refused (RFC 9457)."""

    detail: str
    code: str
    status: int = 500
    field: str | None = None
    reason: str | None = None
    errors: list[Any] = []


class BatchResult(msgspec.Struct, frozen=True, rename="camel"):
    """What became of one of a batch."""

    status: int
    reply: Reply | None = None
    problem: Problem | None = None


class BatchReply(msgspec.Struct, frozen=True):
    """A result for each, in order."""

    results: list[BatchResult]


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook that was verified."""

    id: str
    """The same for every delivery of the same thing: what came twice is told by it."""
    type: str
    """`transaction.completed`, `transaction.progress` or `transaction.status`."""
    timestamp: datetime
    reply: Reply
