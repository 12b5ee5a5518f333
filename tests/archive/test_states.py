"""What was written is what is read; older never replaces newer; pages are whole."""

import msgspec
import pytest
from archived import NOW_MS, made, text_of, tx_id

from datp.archive.database import Database
from datp.archive.record import COMPRESSED, PLAIN, Document, archived_state, encode_document, from_row, to_row
from datp.errors import BrokenState, RowsRefused
from datp.model.status import Phase, Status


async def test_a_state_is_read_as_it_was_written(database: Database) -> None:
    state = made(
        phase="waiting",
        external_id="Größe 7 🎈 ",
        request_hash="a1b2",
        state=b'{"bytes":"\xff\x00"}' + text_of(2_000).encode(),
        switches={"go on": b"1 true"},
        join={":open": b"2"},
        parent=tx_id(99),
    )
    assert await database.write_states([state]) == {}
    assert await database.read_states([state.tx_id, tx_id(1)]) == {state.tx_id: state}


async def test_a_newer_version_replaces_an_older_one(database: Database) -> None:
    await database.write_states([made(phase="sleeping", version=10)])
    newer = made(phase="complete", status="success", version=11, owner="bert", group="side", external_id="x")
    assert await database.write_states([newer]) == {}
    assert await database.read_states([newer.tx_id]) == {newer.tx_id: newer}


async def test_an_older_version_never_replaces_a_newer_one_and_is_told_which_that_is(database: Database) -> None:
    newer = made(0, phase="sleeping", version=11)
    await database.write_states([newer])
    assert await database.write_states([made(0, version=10), made(1, version=10)]) == {newer.tx_id: 11}
    assert await database.read_states([newer.tx_id]) == {newer.tx_id: newer}
    assert len(await database.read_states([tx_id(0), tx_id(1)])) == 2


async def test_the_same_version_again_changes_nothing_and_counts_as_taken(database: Database) -> None:
    first = made(version=10, note="first")
    await database.write_states([first])
    assert await database.write_states([made(version=10, note="second")]) == {}
    assert await database.read_states([first.tx_id]) == {first.tx_id: first}


@pytest.mark.parametrize("other", [{"phase": "queued"}, {"phase": "complete", "status": "failed"}])
async def test_what_is_final_stays(database: Database, other: dict[str, str]) -> None:
    final = made(phase="complete", status="success", version=10)
    await database.write_states([final])
    assert await database.write_states([made(version=20, **other)]) == {final.tx_id: 10}
    assert await database.read_states([final.tx_id]) == {final.tx_id: final}


async def test_a_final_state_may_learn_when_the_client_was_notified(database: Database) -> None:
    await database.write_states([made(phase="complete", status="success", version=10, webhook="{}")])
    told = made(phase="complete", status="success", version=12, sequence=10, webhook="{}", notified_at=11)
    assert await database.write_states([told]) == {}
    assert (await database.read_states([told.tx_id]))[told.tx_id].fields["notified_at"] == b"11"
    assert await database.owed_replies() == []


async def test_a_batch_with_all_of_it_says_what_was_not_taken(database: Database) -> None:
    await database.write_states([made(n, version=10 + n) for n in range(5)])
    batch = [made(n, version=12) for n in range(6)][::-1]
    assert await database.write_states(batch) == {tx_id(3): 13, tx_id(4): 14}
    assert await database.write_states([]) == {}


async def test_a_row_that_nobody_can_store_is_named_and_the_others_are_stored(database: Database) -> None:
    await database.write_states([made(3, version=50)])
    states = [made(n, version=20) for n in range(7)]
    broken = msgspec.structs.replace(states[5], external_id="\ud800")
    with pytest.raises(RowsRefused) as refused:
        await database.write_states([*states[:5], broken, states[6]])
    assert list(refused.value.refused) == [tx_id(5)] and tx_id(5) in str(refused.value)
    assert refused.value.held == {tx_id(3): 50}
    assert set(await database.read_states([tx_id(n) for n in range(7)])) == {tx_id(n) for n in (0, 1, 2, 3, 4, 6)}


async def test_the_newest_transaction_with_an_external_id_is_found(database: Database) -> None:
    await database.write_states(
        [
            made(1, phase="complete", status="success", external_id="order 1", request_hash="h1"),
            made(2, external_id="order 1", request_hash="h2"),
            made(3, external_id="order 1", owner="bert", request_hash="h3"),
            made(4, external_id="order 1 ", request_hash="h4"),
            made(5, external_id="ORDER 1", request_hash="h5"),
        ]
    )
    assert await database.find_external_id("anna", "order 1") == (tx_id(2), "h2")
    assert await database.find_external_id("bert", "order 1") == (tx_id(3), "h3")
    assert await database.find_external_id("anna", "order 1 ") == (tx_id(4), "h4")
    assert await database.find_external_id("anna", "order") is None


async def test_live_states_come_in_pages_and_final_ones_are_not_among_them(database: Database) -> None:
    live = [made(n, phase="waiting") for n in range(0, 10, 2)]
    await database.write_states(live + [made(n, phase="complete", status="failed") for n in range(1, 10, 2)])
    first = await database.live_states(count=3)
    rest = await database.live_states(after=first[-1].tx_id, count=3)
    assert first + rest == live


async def test_replies_that_are_owed_come_in_pages(database: Database) -> None:
    owed = [made(n, phase="complete", status="success", is_owed=True) for n in range(4)]
    others = [made(5, phase="complete", status="success"), made(6, is_owed=True)]
    await database.write_states([*owed, *others])
    first = await database.owed_replies(count=3)
    assert [*first, *await database.owed_replies(after=first[-1].tx_id)] == owed


async def test_external_ids_that_ended_lately_come_in_pages(database: Database) -> None:
    def ended(number: int, at: int, **fields: str) -> list[object]:
        states.append(made(number, phase="complete", status="success", version=at, request_hash="h", **fields))
        return ["anna", fields.get("external_id"), tx_id(number), "h", at]

    states: list = []  # type: ignore[type-arg]
    expected = [ended(1, NOW_MS + 5, external_id="a"), ended(0, NOW_MS + 6, external_id="b")]
    expected += [ended(2, NOW_MS + 6, external_id="c")]
    ended(3, NOW_MS + 4, external_id="d")
    ended(4, NOW_MS + 7)
    states.append(made(5, version=NOW_MS + 8, external_id="e"))
    await database.write_states(states)
    found = await database.recent_external_ids(NOW_MS + 5, count=2)
    found += await database.recent_external_ids(NOW_MS + 5, (found[-1][4], found[-1][2]), count=2)
    assert [list(row) for row in found] == expected


async def test_a_version_is_raised_only_from_the_one_that_is_held(database: Database) -> None:
    await database.write_states([made(0, version=10), made(1, phase="complete", status="success", version=10)])
    assert not await database.raise_version(tx_id(0), 9, 20)
    assert await database.raise_version(tx_id(0), 10, 20)
    assert not await database.raise_version(tx_id(0), 10, 30)
    assert not await database.raise_version(tx_id(1), 10, 20)
    assert not await database.raise_version(tx_id(7), 10, 20)
    raised = (await database.read_states([tx_id(0)]))[tx_id(0)]
    assert raised.version == 20 and raised.fields["version"] == b"20"


@pytest.mark.parametrize(
    ("fields", "phase", "status"),
    [
        ({"phase": "joining"}, Phase.JOINING, Status.WAITING),
        ({"phase": "exception"}, Phase.EXCEPTION, Status.WAITING),
        ({"phase": "sleeping", "undoing": "failed"}, Phase.SLEEPING, Status.RUNNING),
        ({"phase": "complete", "status": "internal-error", "undoing": "x"}, Phase.COMPLETE, Status.INTERNAL_ERROR),
    ],
)
def test_the_status_is_what_a_client_sees(fields: dict[str, str], phase: Phase, status: Status) -> None:
    state = made(**fields)  # type: ignore[arg-type]
    assert (state.phase, state.status, state.is_final) == (phase, status, phase == Phase.COMPLETE)


def test_a_state_that_lacks_what_columns_need_is_broken() -> None:
    with pytest.raises(BrokenState, match=f"{tx_id(0)} can't be archived: .* KeyError.'sequence'."):
        archived_state(tx_id(0), 1, {"phase": b"queued"})
    with pytest.raises(BrokenState, match=r"missing or wrong: UnicodeDecodeError"):
        made(owner=b"\xff")


def test_a_document_is_compressed_only_when_that_makes_it_smaller() -> None:
    small = Document({"state": b"{}"}, {}, {})
    large = Document({"state": text_of(1_500).encode()}, {}, {})
    assert encode_document(small)[0] == PLAIN
    encoding, encoded = encode_document(large)
    assert encoding == COMPRESSED and len(encoded) < 1_200


@pytest.mark.parametrize("encoding", ["msgpack", "msgpack+zstd", "pickle"])
def test_a_document_that_can_not_be_read_is_broken(encoding: str) -> None:
    with pytest.raises(BrokenState, match=tx_id(0)):
        from_row((*to_row(made())[:-2], encoding, b"\xc1?"))
