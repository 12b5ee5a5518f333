"""The transaction's document: what is stored as `state`, and how the whole is assembled from it when it is read.

Fields that scripts need (status, owner, output, switches, deadline, …) live beside it in the hash, and only there.
"""

from typing import Any, Final, Literal

import msgspec

from datp.errors import BrokenState
from datp.model.flow import INPUT, NOTHING, OUTPUT, FlowEntry, Ref
from datp.model.ids import PipelineName, PipelineVersion, StepId, TransactionId
from datp.model.status import FINAL, Status
from datp.model.values import printable, shown

FORMAT: Final = 1
"""The document's format; a reader refuses one that it doesn't know."""

NULL = b"null"

_STATUSES: Final = frozenset({"", *FINAL})
"""What an entry's status may be: an entry is open, or it has ended."""


class Undo(msgspec.Struct, rename="camel"):
    """The final status that undo began with: nothing changes it any more."""

    status: Status
    note: str = ""


class Transaction(msgspec.Struct, rename="camel", omit_defaults=True):
    """The stored document. Whoever holds the token holds the only copy that may be changed."""

    format: Literal[1] = 1
    transaction_input: msgspec.Raw = msgspec.Raw(NULL)
    metadata: dict[str, Any] = {}
    versions: dict[str, str] = {}
    """pipeline → the version pinned for this transaction, from the first time that it was used."""
    flow: list[FlowEntry] = []
    undo: Undo | None = None
    nested: int = 0
    """Of a branch: how many pipelines stand above it, in the transactions that it belongs to."""

    def pin(self, name: PipelineName, version: PipelineVersion) -> None:
        self.versions[name] = version

    def value(self, ref: Ref) -> bytes:
        """The JSON that a reference stands for; raises BrokenState when it stands for nothing."""
        source = self.source(ref)
        if source == INPUT:
            return bytes(self.transaction_input)
        if source == OUTPUT:
            raise BrokenState("A final transaction's output is kept beside its document, and is not here")
        entry, is_input = self._at(source)
        return bytes(entry.input if is_input else entry.output) or NULL

    def source(self, ref: Ref) -> Ref:
        """The reference that holds the value itself, so that chains stay one link long."""
        for _ in range(2 * len(self.flow) + 1):
            if ref in (INPUT, OUTPUT):
                return ref
            entry, is_input = self._at(ref)
            further = entry.input_ref if is_input else entry.output_ref
            if not further:
                return ref
            ref = further
        raise BrokenState(f"The stored state cannot be read: the reference {shown(ref)} goes round in a circle")

    def input_source(self, entry: FlowEntry) -> Ref:
        """Where the entry's input is: references are made one link long, so this is the end of the chain."""
        return entry.input_ref or f"{entry.i}.input"

    def output_source(self, entry: FlowEntry) -> Ref:
        """Where the entry's output is."""
        return entry.output_ref or f"{entry.i}.output"

    def hand_over_output(self) -> None:
        """The output has been stored beside the document, which refers to it from now on."""
        source = self.source("0.output")
        if source not in (INPUT, OUTPUT):
            entry, is_input = self._at(source)
            if not is_input:
                entry.output, entry.output_ref = NOTHING, OUTPUT

    def take_back_output(self, output: bytes) -> None:
        """The document is whole again, with the output that was kept beside it."""
        for entry in self.flow:
            if entry.output_ref == OUTPUT:
                entry.output, entry.output_ref = msgspec.Raw(output), ""

    def input_of(self, entry: FlowEntry) -> bytes:
        return self.value(entry.input_ref) if entry.input_ref else (bytes(entry.input) or NULL)

    def output_of(self, entry: FlowEntry) -> bytes:
        return self.value(entry.output_ref) if entry.output_ref else (bytes(entry.output) or NULL)

    def _at(self, ref: Ref) -> tuple[FlowEntry, bool]:
        index, _, side = ref.partition(".")
        if side not in ("input", "output") or not (
            len(index) < 10 and index.isdecimal() and int(index) < len(self.flow)
        ):
            raise BrokenState(f"The stored state cannot be read: it refers to {shown(ref)}")
        return self.flow[int(index)], side == "input"

    def pipeline_entry(self, entry: FlowEntry) -> FlowEntry:
        """The pipeline that a step's entry belongs to."""
        return self.flow[entry.p]

    def depth(self, entry: FlowEntry) -> int:
        """How many pipelines stand above this entry."""
        depth = self.nested
        while entry.p >= 0:
            entry = self.flow[entry.p]
            depth += entry.is_pipeline
        return depth


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Transaction)


def encode_transaction(transaction: Transaction) -> bytes:
    return _encoder.encode(transaction)


def encode_final(transaction: Transaction) -> bytes:
    """A final transaction's document, which refers to the output that is stored beside it.

    In memory it stays whole: a verdict may have come first, and a branch's undo needs its values.
    """
    output = transaction.value("0.output")
    transaction.hand_over_output()
    encoded = _encoder.encode(transaction)
    transaction.take_back_output(output)
    return encoded


def decode_transaction(stored: bytes) -> Transaction:
    """The stored document; raises BrokenState for anything else."""
    try:
        transaction = _decoder.decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenState(f"The stored state cannot be read: {printable(error)}") from None
    _check(transaction)
    return transaction


def step_id(tx_id: TransactionId, entry: FlowEntry) -> StepId:
    """The step's idempotency key: the same for every run of it, after a crash too."""
    return StepId(entry.step_id or f"s-{tx_id[3:]}.{entry.path}")


def _check(transaction: Transaction) -> None:
    """Parents point backwards, whatever doesn't would make a reader loop; and every status is one."""
    if not transaction.flow:
        raise BrokenState("The stored state cannot be read: its flow is empty")
    for i, entry in enumerate(transaction.flow):
        if entry.i != i or not -1 <= entry.p < i or (entry.p == -1) != (i == 0) or entry.undo_of >= i:
            raise BrokenState(f"The stored state cannot be read: entry {i} of its flow points nowhere")
        if entry.status not in _STATUSES:
            raise BrokenState(
                f"The stored state cannot be read: entry {i} of its flow has status {shown(entry.status)}"
            )
