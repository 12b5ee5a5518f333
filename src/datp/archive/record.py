"""The record: a transaction as SQL keeps it, columns for what queries need and a document with everything.

The document is what the hot store held: its fields, its switches, and what its branches left, as MessagePack,
compressed where that makes it smaller. What a client would be told of the status stands in a column of its own.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import zstandard

from datp.errors import BrokenState
from datp.model.status import STATUS_OF_PHASE, Phase, Status

COLUMNS: Final = (
    "tx_id", "version", "sequence", "phase", "status", "is_final", "owner", "type", "pipeline_version", "node_group",
    "external_id", "request_hash", "parent", "started_at", "ended_at", "reply_owed", "encoding", "document",
)  # fmt: skip
"""Of datp_transaction, in the order in which the queries name them."""

PLAIN: Final = "msgpack"
COMPRESSED: Final = "msgpack+zstd"

_pack = msgspec.msgpack.Encoder().encode
_compress = zstandard.ZstdCompressor(level=1).compress
"""Level 1: a document of 1.5 KiB takes some 10 µs and shrinks to less than half; higher levels gain a few percent."""
_decompress = zstandard.ZstdDecompressor().decompress

_PHASES: Final = {phase.value.encode(): phase for phase in Phase}
_STATUSES: Final = {status.value.encode(): status for status in Status}

Row = tuple[Any, ...]


class Document(msgspec.Struct, array_like=True, frozen=True):
    """What the hot store held."""

    fields: dict[str, bytes]
    switches: dict[str, bytes]
    join: dict[str, bytes]


_unpack = msgspec.msgpack.Decoder(Document).decode


class ArchivedState(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A transaction, as it is written to SQL and read from it."""

    tx_id: str
    version: int
    sequence: int
    """The version, and therefore the time, of the last change that a client can see."""
    phase: Phase
    status: Status
    """As a client sees it."""
    owner: str
    type: str
    pipeline_version: str
    node_group: str
    external_id: str | None
    request_hash: str
    parent: str | None
    """Of a branch."""
    started_at: int
    ended_at: int | None
    reply_owed: bool
    """It ended, and a webhook was asked for, but the client has not been told."""
    fields: dict[str, bytes]
    switches: dict[str, bytes]
    join: dict[str, bytes]

    @property
    def is_final(self) -> bool:
        return self.phase == Phase.COMPLETE

    @cached_property
    def row(self) -> Row:
        """Its columns, with its document encoded: once, and perhaps before it is its turn to be written."""
        return to_row(self)

    @property
    def is_encoded(self) -> bool:
        return "row" in self.__dict__


def archived_state(
    tx_id: str,
    version: int,
    fields: Mapping[str, bytes],
    switches: Mapping[str, bytes] | None = None,
    join: Mapping[str, bytes] | None = None,
    *,
    is_owed: bool = False,
) -> ArchivedState:
    """What the hot store gave, with its columns; `is_owed`: a webhook is still to be delivered. Raises BrokenState."""
    if fields.get("untold"):
        # Once SQL holds it the client is told, with this version; that is what is true of it from then on.
        fields = {**fields, "untold": b"", "sequence": str(version).encode()}
        is_owed = bool(fields.get("webhook"))
    get = fields.get
    try:
        phase = _PHASES[fields["phase"]]
        status = _STATUSES[fields["status"]] if phase is Phase.COMPLETE else STATUS_OF_PHASE[phase]
        sequence, started_at = int(float(fields["sequence"])), int(float(fields["started_at"]))
        owner, type_, node_group = fields["owner"].decode(), fields["type"].decode(), fields["group"].decode()
        pipeline_version = fields["pipeline_version"].decode()
        external_id, request_hash = get("external_id", b"").decode(), get("request_hash", b"").decode()
        parent = get("parent", b"").decode()
    except (KeyError, ValueError, OverflowError) as error:
        raise BrokenState(f"{tx_id} can't be archived: a field of its state is missing or wrong: {error!r}") from None
    is_final = phase is Phase.COMPLETE
    if not is_final and get("undoing"):
        status = Status.RUNNING
    return ArchivedState(
        tx_id=tx_id,
        version=version,
        sequence=sequence,
        phase=phase,
        status=status,
        owner=owner,
        type=type_,
        pipeline_version=pipeline_version,
        node_group=node_group,
        external_id=external_id or None,
        request_hash=request_hash,
        parent=parent or None,
        started_at=started_at,
        ended_at=sequence if is_final else None,
        reply_owed=is_final and is_owed,
        fields=dict(fields),
        switches=dict(switches or {}),
        join=dict(join or {}),
    )


def to_row(state: ArchivedState) -> Row:
    """The columns of a state, with its document encoded."""
    encoding, document = encode_document(Document(state.fields, state.switches, state.join))
    return (
        state.tx_id,
        state.version,
        state.sequence,
        state.phase.value,
        state.status.value,
        int(state.is_final),
        state.owner,
        state.type,
        state.pipeline_version,
        state.node_group,
        state.external_id,
        state.request_hash,
        state.parent,
        state.started_at,
        state.ended_at,
        int(state.reply_owed),
        encoding,
        document,
    )


def from_row(row: Sequence[Any]) -> ArchivedState:
    """The state of a row; raises BrokenState."""
    *columns, encoding, encoded = row
    named = dict(zip(COLUMNS, columns, strict=False))
    document = decode_document(named["tx_id"], encoding, encoded)
    del named["is_final"]
    # The reconciler raises the column alone; whoever restores or adopts the fields gets one truth.
    document.fields["version"] = str(named["version"]).encode()
    named.update(
        phase=Phase(named["phase"]),
        status=Status(named["status"]),
        reply_owed=bool(named["reply_owed"]),
        fields=document.fields,
        switches=document.switches,
        join=document.join,
    )
    return ArchivedState(**named)


def encode_document(document: Document) -> tuple[str, bytes]:
    """The encoding's name, and the document in it."""
    packed = _pack(document)
    compressed = _compress(packed)
    return (COMPRESSED, compressed) if len(compressed) < len(packed) else (PLAIN, packed)


def decode_document(tx_id: str, encoding: str, encoded: bytes) -> Document:
    """The document; raises BrokenState."""
    try:
        if encoding == COMPRESSED:
            return _unpack(_decompress(encoded))
        if encoding == PLAIN:
            return _unpack(encoded)
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        raise BrokenState(f"The archived document of {tx_id} can't be read: {error}") from None
    raise BrokenState(f"The archived document of {tx_id} is in an encoding that this version doesn't know: {encoding}")
