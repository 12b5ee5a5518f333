"""The stored document reads back as it was written, whole; anything else is a broken state, and nothing worse."""

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import NOW, TX_ID, is_clear, json_values, nested, sound_text, trying

from datp.errors import BrokenState
from datp.model.event import START, VERDICT, Event, decode_event, encode_event
from datp.model.flow import INPUT, OUTPUT, FlowEntry
from datp.model.ids import TransactionId
from datp.model.status import FINAL
from datp.model.transaction import (
    Transaction,
    Undo,
    decode_transaction,
    encode_final,
    encode_transaction,
    step_id,
)

raws = json_values.map(lambda value: msgspec.Raw(msgspec.json.encode(value)))
statuses = st.sampled_from(sorted(FINAL))


@st.composite
def documents(draw: st.DrawFn) -> Transaction:
    """A document as the engine makes them: parents and references point where they may."""
    count = draw(st.integers(1, 12))
    flow = []
    for i in range(count):
        entry = FlowEntry(
            i=i,
            p=-1 if i == 0 else draw(st.integers(0, i - 1)),
            path=draw(st.sampled_from(["", "1", "2.1", "1:undo"])),
            name=draw(st.sampled_from(["a", "b/c"])),
            type=draw(st.sampled_from(["", "shop/pay"])),
            pipeline_version=draw(st.sampled_from(["", "0123456789abcdef"])),
            node_group=draw(st.sampled_from(["main", "other"])),
            return_group=draw(st.sampled_from(["", "main"])),
            node_id=draw(st.sampled_from(["", "n1"])),
            ts1=draw(st.integers(0, NOW)),
            ts2=draw(st.integers(0, NOW)),
            ts3=draw(st.integers(0, NOW)),
            status=draw(st.just("") | statuses),
            note=draw(sound_text),
            attempt=draw(st.integers(0, 9)),
            failures=draw(st.integers(0, 9)),
            sleeping_since=draw(st.integers(0, NOW)),
            undoable=draw(st.booleans()),
            undo_of=-1 if i == 0 else draw(st.integers(-1, i - 1)),
        )
        # A reference names what holds the value itself: an own value of any entry that has one.
        sources = [INPUT, *(f"{e.i}.input" for e in flow if e.input), *(f"{e.i}.output" for e in flow if e.output)]
        for side in ("input", "output"):
            if draw(st.booleans()):
                setattr(entry, side, draw(raws))
            else:
                setattr(entry, f"{side}_ref", draw(st.sampled_from(sources)))
        if draw(st.booleans()):
            entry.saved = draw(raws)
        flow.append(entry)
    return Transaction(
        transaction_input=draw(raws),
        metadata=draw(st.dictionaries(sound_text, json_values, max_size=2)),
        versions=draw(st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["v1", "v2"]))),
        flow=flow,
        undo=draw(st.none() | st.builds(Undo, status=statuses, note=sound_text)),
        nested=draw(st.integers(0, 3)),
    )


def values_of(transaction: Transaction) -> list[tuple[bytes, bytes]]:
    return [(transaction.input_of(entry), transaction.output_of(entry)) for entry in transaction.flow]


@trying(200)
@given(documents())
def test_a_document_reads_back_as_it_was_written(transaction: Transaction) -> None:
    stored = encode_transaction(transaction)
    read = decode_transaction(stored)
    assert read == transaction
    assert encode_transaction(read) == stored


@trying(200)
@given(documents())
def test_a_value_is_stored_once_and_shown_in_full(transaction: Transaction) -> None:
    stored = decode_transaction(encode_transaction(transaction))
    for entry, (value_in, value_out) in zip(stored.flow, values_of(transaction), strict=True):
        msgspec.json.decode(value_in)
        msgspec.json.decode(value_out)
        assert stored.input_of(entry) == stored.value(stored.input_source(entry)) == value_in
        assert stored.output_of(entry) == stored.value(stored.output_source(entry)) == value_out
        if entry.input_ref:
            assert not entry.input, "a reference and a value beside it"
            assert stored.source(entry.input_ref) == entry.input_ref, "references are one link long"


@trying(200)
@given(documents())
def test_handing_the_output_over_and_taking_it_back_changes_nothing(transaction: Transaction) -> None:
    before = encode_transaction(transaction)
    output = transaction.value("0.output")
    transaction.hand_over_output()
    handed_over = encode_transaction(transaction)
    read = decode_transaction(handed_over)
    read.take_back_output(output)
    assert encode_transaction(read) == before
    if transaction.source("0.output") == OUTPUT:
        with pytest.raises(BrokenState):
            transaction.value("0.output")


@trying(200)
@given(documents())
def test_a_final_document_refers_to_its_output_and_stays_whole_in_memory(transaction: Transaction) -> None:
    before, values = encode_transaction(transaction), values_of(transaction)
    final = encode_final(transaction)
    assert encode_transaction(transaction) == before
    read = decode_transaction(final)
    read.take_back_output(transaction.value("0.output"))
    assert values_of(read) == values
    assert len(final) <= len(before) + len('"outputRef":"output"')


def test_an_output_that_is_the_transactions_input_is_not_handed_over() -> None:
    transaction = Transaction(flow=[FlowEntry(i=0, output_ref=INPUT)], transaction_input=msgspec.Raw(b"[1]"))
    transaction.hand_over_output()
    assert transaction.value("0.output") == b"[1]"


# ── broken documents ─────────────────────────────────────────────────────────────────────────────────────────────


def read_everything(stored: bytes) -> None:
    """Whatever readers do with a document; raises BrokenState."""
    transaction = decode_transaction(stored)
    for entry in transaction.flow:
        transaction.input_of(entry)
        transaction.output_of(entry)
        transaction.source(f"{entry.i}.output")
        transaction.depth(entry)
        step_id(TransactionId(TX_ID), entry)
    transaction.hand_over_output()
    transaction.take_back_output(b"null")
    encode_transaction(transaction)


def breaks_clearly(stored: bytes) -> bool:
    """Whether it is refused; raises what is no BrokenState."""
    began = time.perf_counter()
    try:
        read_everything(stored)
    except BrokenState as error:
        assert is_clear(error)
        return True
    finally:
        assert time.perf_counter() - began < 5, "reading it took too long"
    return False


@trying(300)
@given(json_values)
def test_any_other_json_is_a_broken_state(value: Any) -> None:
    assert breaks_clearly(msgspec.json.encode(value))


@trying(200)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_broken_state(stored: bytes) -> None:
    assert breaks_clearly(stored)


@trying(200)
@given(documents(), st.data())
def test_a_document_that_was_cut_is_a_broken_state(transaction: Transaction, data: st.DataObject) -> None:
    stored = encode_transaction(transaction)
    assert breaks_clearly(stored[: data.draw(st.integers(0, len(stored) - 1))])


@trying(400)
@given(documents(), st.data())
def test_a_document_with_one_thing_changed_reads_or_is_a_broken_state(
    transaction: Transaction, data: st.DataObject
) -> None:
    document = msgspec.json.decode(encode_transaction(transaction))
    spoilt = data.draw(st.sampled_from([document, *document["flow"]]))
    field = data.draw(
        st.sampled_from([*spoilt, "i", "p", "ts1", "status", "inputRef", "outputRef", "undoOf", "flow", "format"])
    )
    spoilt[field] = data.draw(
        json_values
        | st.sampled_from(
            ["0.input", "0.output", "11.output", "-1.input", "99.output", "x.y", "1.input.2", f"{'9' * 5000}.input"]
        )
        | st.integers(-3, 15)
    )
    breaks_clearly(msgspec.json.encode(document))


@trying(200)
@given(documents(), st.data())
def test_references_that_go_anywhere_read_or_are_a_broken_state(transaction: Transaction, data: st.DataObject) -> None:
    count = len(transaction.flow)
    refs = st.sampled_from(["", INPUT, OUTPUT, *(f"{i}.{side}" for i in range(count + 1) for side in (INPUT, OUTPUT))])
    for entry in transaction.flow:
        entry.input_ref, entry.output_ref = data.draw(refs), data.draw(refs)
    breaks_clearly(encode_transaction(transaction))


def test_references_in_a_circle_are_a_broken_state_soon() -> None:
    count = 2_000
    flow = [
        FlowEntry(i=i, p=-1 if i == 0 else 0, input_ref=f"{(i + 1) % count}.input", output_ref=f"{i}.output")
        for i in range(count)
    ]
    stored = encode_transaction(Transaction(flow=flow))
    transaction = decode_transaction(stored)
    began = time.perf_counter()
    with pytest.raises(BrokenState, match="circle"):
        transaction.input_of(transaction.flow[0])
    with pytest.raises(BrokenState, match="circle"):
        transaction.output_of(transaction.flow[5])
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(
    ("what", "flow"),
    [
        ("no entry", []),
        ("a wrong number", [{"i": 1}]),
        ("no parent", [{"i": 0}, {"i": 1}]),
        ("itself as parent", [{"i": 0}, {"i": 1, "p": 1}]),
        ("a later parent", [{"i": 0}, {"i": 1, "p": 2}, {"i": 2, "p": 0}]),
        ("a root with a parent", [{"i": 0, "p": 0}]),
        ("a parent below the root", [{"i": 0}, {"i": 1, "p": -2}]),
        ("an undo of itself", [{"i": 0}, {"i": 1, "p": 0, "undoOf": 1}]),
        ("a status that is none", [{"i": 0, "status": "done"}]),
        ("a live status", [{"i": 0, "status": "running"}]),
        ("a text for a time", [{"i": 0, "ts1": "now"}]),
        ("a fraction for a time", [{"i": 0, "ts1": 1.5}]),
    ],
)
def test_a_flow_that_points_nowhere_is_a_broken_state(what: str, flow: list[dict[str, Any]]) -> None:
    with pytest.raises(BrokenState):
        decode_transaction(msgspec.json.encode({"flow": flow}))


@pytest.mark.parametrize("format_", [0, 2, 99, "1", None, 1.5])
def test_a_document_of_another_format_is_refused(format_: Any) -> None:
    with pytest.raises(BrokenState, match="format"):
        decode_transaction(msgspec.json.encode({"format": format_, "flow": [{"i": 0}]}))


def test_a_document_nested_too_deep_is_a_broken_state() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert breaks_clearly(b'{"flow":[{"i":0,"input":' + deep + b"}]}")
    assert breaks_clearly(deep)
    fine = msgspec.json.encode({"flow": [{"i": 0, "input": nested(100)}]})
    assert not breaks_clearly(fine)


def test_an_index_beyond_all_numbers_is_a_broken_state() -> None:
    for ref in ("9" * 5_000 + ".input", "²³.input", "٣٤.output", "-1.input", "1e1.input", ".input", "0.", "0"):
        stored = msgspec.json.encode({"flow": [{"i": 0, "inputRef": ref}]})
        assert breaks_clearly(stored), ref


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["start", "continue", "return", "joined", "undo", "verdict"])
def test_an_event_reads_back_as_it_was_written(kind: Any) -> None:
    assert decode_event(encode_event(Event(kind, 7))) == Event(kind, 7)


def test_events_that_scripts_write_are_those_that_the_engine_writes() -> None:
    assert encode_event(Event("start")) == START
    assert encode_event(Event("verdict")) == VERDICT


def test_scripts_write_the_same_events() -> None:
    from datp.hotstore.scripts import include, scripts

    for name in ("enqueue", "fork"):
        assert START in scripts()[name].body
    assert VERDICT in include("ending")[1]


@trying(100)
@given(st.binary(max_size=30) | json_values.map(msgspec.json.encode))
def test_what_is_no_event_is_refused(stored: bytes) -> None:
    with pytest.raises(BrokenState):
        decode_event(stored)
