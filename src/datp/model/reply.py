"""The reply: the one document that a client gets, however it asks; for the same sequence, the same bytes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

from datp.model.status import STATUS_OF_PHASE, Phase, Status


class Reply(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A transaction, as clients see it."""

    tx_id: str
    owner: str
    external_id: str | None
    transaction_type: str
    pipeline_version: str
    status: Status
    undoing: bool = False
    """Said only while it is so: it runs to undo what was done."""
    progress_report: msgspec.Raw
    transaction_output: msgspec.Raw
    note: str | None
    start_time: str
    last_updated: str
    completion_time: str | None
    sequence: int


def reply_from(tx_id: str, fields: Mapping[str, bytes], parked: bytes = b"") -> Reply:
    """The reply, from the fields of the hash; times are the store's."""
    phase = Phase(_text(fields, "phase"))
    if fields.get("untold"):
        # Durability journal: it has ended, but nobody is told before SQL holds that.
        phase, fields = Phase.RUNNING, {**fields, "output": b"", "note": b"", "undoing": b""}
    status = Status(_text(fields, "status")) if phase == Phase.COMPLETE else STATUS_OF_PHASE[phase]
    undoing = phase != Phase.COMPLETE and bool(_text(fields, "undoing"))
    note = _text(fields, "note")
    if phase == Phase.EXCEPTION:
        note = f"parked: {msgspec.json.decode(parked)['reason']}" if parked else "parked"
    sequence = int(fields.get("sequence") or 0)
    return Reply(
        tx_id=tx_id,
        owner=_text(fields, "owner"),
        external_id=_text(fields, "external_id") or None,
        transaction_type=_text(fields, "type"),
        pipeline_version=_text(fields, "pipeline_version"),
        status=Status.RUNNING if undoing else status,
        undoing=undoing,
        progress_report=_raw(fields.get("progress")),
        transaction_output=_raw(fields.get("output")),
        note=note or None,
        start_time=iso(int(fields.get("started_at") or 0)),
        last_updated=iso(sequence),
        completion_time=iso(sequence) if phase == Phase.COMPLETE else None,
        sequence=sequence,
    )


NULL: Final = msgspec.Raw(b"null")

_encode = msgspec.json.Encoder().encode


def encode_reply(reply: Reply) -> bytes:
    """The reply's bytes."""
    return _encode(reply)


@lru_cache(maxsize=256)
def iso(ms: int) -> str:
    """The time as clients read it: 2026-11-18T10:00:00.000Z."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _raw(stored: bytes | None) -> msgspec.Raw:
    return msgspec.Raw(stored) if stored else NULL


def _text(fields: Mapping[str, bytes], name: str) -> str:
    return fields.get(name, b"").decode()
