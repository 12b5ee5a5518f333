"""A delivery: one thing that one client is told, and what became of each try."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from datp.model.metadata import decode_webhook
from datp.model.reply import iso, reply_from
from datp.reply_converter import ReplyConverter

COMPLETED: Final = "transaction.completed"

ANSWER_LENGTH_MAX: Final = 200
"""Of what is kept of an answer: enough to see what it was about."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What a sender has claimed."""

    tx_id: str
    sequence: int
    owner: str
    kind: str
    """The type of the body: transaction.completed, transaction.progress or transaction.status."""
    url: str
    body: bytes
    attempt: int
    """How often it was tried before."""
    claim: str
    send_by: float
    """When it must be connected at the latest, by the monotonic clock: later, somebody else may have it."""
    from_sql: bool = False
    forced: bool = False
    """Somebody wants it sent, whatever is held against the URL."""

    @property
    def id(self) -> str:
        """The webhook-id: the same for every try of the same thing, and without a full stop, as the standard wants."""
        return delivery_id(self.tx_id, self.sequence)

    @property
    def is_end(self) -> bool:
        return self.kind == COMPLETED


class Verdict(StrEnum):
    """What an answer means."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"
    """The receiver wants no more."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of one try."""

    verdict: Verdict
    status: int
    """The answer's; 0 when there was none."""
    latency_ms: int
    says: str
    """The first of the answer, or why there was none."""
    retry_after_ms: int = 0
    """The receiver asks for this pause."""

    @property
    def comment(self) -> str:
        """In one line."""
        return f"{self.status} {self.says}".strip() if self.status else self.says


def delivery_id(tx_id: str, sequence: int) -> str:
    return f"{tx_id}-{sequence}"


def delivery_from(tx_id: str, record: Mapping[str, bytes], send_by: float, converter: ReplyConverter) -> Delivery:
    """The delivery of a record of the store. Raises ValueError, KeyError for one that can't be read."""
    kind = record["kind"].decode()
    reply = reply_from(tx_id, record, record.get("reason", b""))
    return Delivery(
        tx_id=tx_id,
        sequence=reply.sequence,
        owner=reply.owner,
        kind=kind,
        url=decode_webhook(record["webhook"]).url,
        body=body_of(kind, reply.sequence, converter.body(reply)),
        attempt=int(record["attempt"]),
        claim=record["claim"].decode(),
        send_by=send_by,
        forced=bool(record.get("forced")),
    )


def body_of(kind: str, sequence: int, reply: bytes) -> bytes:
    """What is posted: the reply's own bytes, and what has happened when. The same for every try."""
    return b'{"type":"%b","timestamp":"%b","data":%b}' % (kind.encode(), iso(sequence).encode(), reply)


def shown_answer(answer: bytes) -> str:
    """The first of an answer, on one line."""
    text = answer[:ANSWER_LENGTH_MAX].decode(errors="replace")
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())
