"""Live and archived transactions are one list: each once, newest first, page by page, while they move."""

from collections.abc import Sequence
from typing import Any

import pytest
from archived import NOW_MS, made, tx_id
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import Server
from worker.support import Engine, engine, until

from datp.api.listing import Listed, list_transactions
from datp.archive import restore
from datp.archive.database import Database
from datp.archive.record import ArchivedState
from datp.archive.search import SearchFilter
from datp.errors import BadRequest, DatabaseUnreachable, NotFound
from datp.hotstore.store import Found, Store
from datp.model.ids import TransactionId
from datp.model.status import Status
from datp.settings import Settings

BOTH = ("sql", "memory", "both", "ended meanwhile", "unacknowledged")
"""Where a transaction is: the row of `both` is older than what memory has; `ended meanwhile`: SQL has its end, and
memory an earlier state, as between the reading of the one and of the other; `unacknowledged`: SQL has its end, and
memory has it too."""

PASSING = {"ended meanwhile"}

STATUSES = [Status.QUEUED, Status.WAITING, Status.SUCCESS, Status.FAILED]

TRANSACTIONS = st.lists(
    st.tuples(
        st.sampled_from(BOTH),
        st.sampled_from(["anna", "bert"]),
        st.sampled_from(["order", "refund"]),
        st.sampled_from(["", "", "x"]),
        st.integers(0, 3),  # when: often together
        st.booleans(),  # whether it failed, where it ended
    ),
    max_size=16,
)
FILTERS = st.builds(
    SearchFilter,
    status=st.sampled_from([None, None, *STATUSES]),
    owner=st.sampled_from(["", "", "anna", "carl"]),
    type=st.sampled_from(["", "", "order", "none"]),
    external_id=st.sampled_from(["", "", "x"]),
    from_ms=st.sampled_from([0, NOW_MS + 1]),
    until_ms=st.sampled_from([None, NOW_MS, NOW_MS + 3]),
)


async def pages(
    store: Store, database: Database | None, wanted: SearchFilter, limit: int, *, group: str = ""
) -> list[Listed]:
    """All pages, one after the other."""
    found: list[Listed] = []
    cursor = ""
    while True:
        page = await list_transactions(store, database, wanted, group=group, cursor=cursor, limit=limit)
        assert page.unread is None and len(page.transactions) <= limit
        found += page.transactions
        if page.next_cursor is None:
            return found
        assert page.transactions, "no page of a few transactions is empty"
        cursor = page.next_cursor


def listed_as(state: ArchivedState) -> dict[str, Any]:
    return {
        "tx_id": state.tx_id,
        "status": state.status,
        "owner": state.owner,
        "transaction_type": state.type,
        "external_id": state.external_id,
        "note": state.fields.get("note", b"").decode() or None,
    }


# ── what is listed ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.corrupts  # externalIds are used again while they are taken
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=TRANSACTIONS, filters=st.lists(FILTERS, min_size=1, max_size=3), limit=st.integers(1, 6))
async def test_each_is_listed_once_as_it_is(
    store: Store,
    valkey_server: Server,
    database: Database,
    said: list[tuple[str, str, str, str, int, bool]],
    filters: list[SearchFilter],
    limit: int,
) -> None:
    async with database.driver.writing() as connection:
        await connection.execute("DELETE FROM datp_transaction")
    valkey_server.client().flushall()
    await store.open(create=True, held=True)
    truth, rows, here, unacknowledged = await laid_out(said)
    await database.write_states(rows)
    await restore.adopt(store, here)
    client = valkey_server.client()
    for state in unacknowledged:
        tag = store.tags[0]
        client.persist(f"stateH:{tag}:{state.tx_id}")
        client.zadd(f"toArchiveZ:{tag}", {state.tx_id: NOW_MS})
        client.zadd(f"startedZ:{tag}", {state.tx_id: state.started_at})
    for wanted in filters:
        # With a status, memory's word may have been true when it was read.
        passing = {state.tx_id for state, one in zip(truth, said, strict=True) if wanted.status and one[0] in PASSING}
        meant = sorted(
            (state for state in truth if is_meant(state, wanted) and state.tx_id not in passing),
            key=lambda state: (state.started_at, state.tx_id),
            reverse=True,
        )
        found = [line for line in await pages(store, database, wanted, limit) if line.tx_id not in passing]
        told = [{name: getattr(line, name) for name in listed_as(meant[0])} for line in found] if meant else found
        assert told == [listed_as(state) for state in meant]


async def laid_out(
    said: Sequence[tuple[str, str, str, str, int, bool]],
) -> tuple[list[ArchivedState], list[ArchivedState], list[ArchivedState], list[ArchivedState]]:
    """What is true, the rows of SQL, what memory has, and what of that SQL has too, but memory doesn't know."""
    truth, rows, here, unacknowledged = [], [], [], []
    for number, (where, owner, type_, external_id, when, failed) in enumerate(said):
        given = {"owner": owner, "type": type_, "started_at": NOW_MS + when}
        # An externalId is taken once while it lives.
        if external_id:
            given["external_id"] = f"{external_id}{number}" if number % 2 else external_id
        end = {"phase": "complete", "status": "failed" if failed else "success", "note": f"ended {number}"}
        first = made(number, version=NOW_MS, phase="joining", **given)
        live = made(number, version=NOW_MS + 1, queue="in", event='{"kind":"start","at":0}', **given)
        final = made(number, version=NOW_MS + 2, output="null", **end, **given)
        truth.append({"memory": live, "both": live}.get(where, final))
        rows += {"memory": [], "both": [first]}.get(where, [final])
        here += {"memory": [live], "both": [live], "ended meanwhile": [live], "unacknowledged": [final]}.get(where, [])
        unacknowledged += [final] if where == "unacknowledged" else []
    return truth, rows, here, unacknowledged


def is_meant(state: ArchivedState, wanted: SearchFilter) -> bool:
    return (
        wanted.status in (None, state.status)
        and wanted.type in ("", state.type)
        and wanted.owner in ("", state.owner)
        and wanted.external_id in ("", state.external_id)
        and state.started_at >= wanted.from_ms
        and (wanted.until_ms is None or state.started_at < wanted.until_ms)
    )


async def test_while_they_move_each_is_on_exactly_one_page(eng: Engine) -> None:
    """They sleep, leave memory, come back, end, and are archived, while the list is read again and again."""
    naps = [{"step": "util/delay", "with": {"duration": f"{ms}ms"}} for ms in (1, 30, 2, 60, 1, 90, 1)]
    await eng.pipeline("naps", *naps)
    await eng.node(roles="worker,wakeup,archive")
    assert eng.archive is not None
    ids = sorted(await eng.start_many("naps", [None] * 60))
    rounds, statuses = 0, set[str]()
    while True:
        done = all(status == "success" for status in await known_statuses(eng, ids))
        found = await pages(eng.store, eng.archive.database, SearchFilter(), 7)
        assert sorted(line.tx_id for line in found) == ids
        began = [(line.start_time, line.tx_id) for line in found]
        assert began == sorted(began, reverse=True)
        statuses |= {line.status for line in found}
        rounds += 1
        if done:
            break
    assert rounds > 1 and statuses >= {"sleeping", "success"}
    assert {line.status for line in found} == {"success"}


async def known_statuses(eng: Engine, ids: list[TransactionId]) -> list[str]:
    assert eng.archive is not None
    archived = await eng.archive.database.read_states(ids)
    return [archived[tx_id].status.value if tx_id in archived else "" for tx_id in ids]


async def test_a_sleeper_that_left_memory_says_when_it_wakes(eng: Engine) -> None:
    assert eng.archive is not None
    await eng.pipeline("waits", {"step": "util/wait", "with": {"switch": "go", "timeout": "7d"}})
    await eng.node(roles="worker,wakeup,archive")
    tx = await eng.start("waits", external_id="e1")

    async def gone() -> bool:
        async with eng.store.turn() as turn:
            reply = turn.get_state([tx])
        return not isinstance(reply.value[0], Found)

    before = (await eng.phase(tx, "waiting")).wake_time
    await until(gone, "it left memory")
    for wanted in (SearchFilter(), SearchFilter(status=Status.WAITING), SearchFilter(owner="acme", external_id="e1")):
        (line,) = await pages(eng.store, eng.archive.database, wanted, 5)
        assert (line.tx_id, line.status, line.wake_switch) == (tx, "waiting", "go")
        assert before is not None and line.wake_time is not None
    # Set, and it goes on: the row in SQL is no longer true.
    await eng.transactions.set_switch(tx, "go", True)
    await eng.final(tx)
    assert await pages(eng.store, eng.archive.database, SearchFilter(status=Status.WAITING), 5) == []
    (line,) = await pages(eng.store, eng.archive.database, SearchFilter(status=Status.SUCCESS), 5)
    assert line.completion_time is not None and line.wake_time is None


async def test_branches_are_listed_for_their_parent_only(eng: Engine) -> None:
    """While they run, when they were joined, and when they are archived."""
    assert eng.archive is not None
    database = eng.archive.database
    held = eng.held()
    await eng.pipeline("a", "test/held")
    await eng.pipeline("b", "util/echo")
    await eng.pipeline("t", {"parallel": {"branches": [{"pipeline": "a"}, {"pipeline": "b"}]}}, "test/held")
    await eng.node()
    parent = await eng.start("t")
    await held.began()
    of_parent = SearchFilter(parent=parent)

    async def types(status: str) -> bool:
        found = await pages(eng.store, database, of_parent, 1)
        assert {line.parent_tx_id for line in found} == {parent}
        return {(line.transaction_type, line.status) for line in found} == {("a", status), ("b", "success")}

    await until(lambda: types("running"), "one branch runs, and one has ended")
    assert [line.tx_id for line in await pages(eng.store, database, SearchFilter(), 9)] == [parent]
    held.let_go()
    await eng.final(parent)
    assert await types("success"), "they have been joined, and nobody has archived them"
    await eng.node(roles="archive")

    async def archived() -> bool:
        found = await database.search(of_parent)
        return len(found) == 2

    await until(archived, "they are archived")
    assert await types("success")


async def test_a_node_groups_transactions_are_found_wherever_they_are(store: Store, database: Database) -> None:
    await database.write_states(
        [made(n, phase="complete", status="success", group="side" if n % 5 == 0 else "main") for n in range(20)]
    )
    found = await pages(store, database, SearchFilter(), 3, group="side")
    assert [line.tx_id for line in found] == [tx_id(15), tx_id(10), tx_id(5), tx_id(0)]


# ── without a database, or one that is away ──────────────────────────────────────────────────────────────────────


async def test_without_an_archive_it_is_what_memory_holds(valkey_server: Server) -> None:
    valkey_server.flush()
    async with engine(valkey_server.url, Settings(partitions=4)) as eng:
        held = eng.held()
        await eng.pipeline("one", "test/held")
        await eng.node()
        ids = [await eng.start("one", external_id=f"e{number}") for number in range(10)]
        await held.began(5)
        found = await pages(eng.store, None, SearchFilter(), 3)
        assert sorted(line.tx_id for line in found) == sorted(ids)
        held.let_go()
        await eng.finals(ids)
        assert {line.status for line in await pages(eng.store, None, SearchFilter(), 4)} == {"success"}
        assert len(await pages(eng.store, None, SearchFilter(type="one", status=Status.SUCCESS), 4)) == 10
        (line,) = await pages(eng.store, None, SearchFilter(owner="acme", external_id="e3"), 4)
        assert line.tx_id == ids[3]


async def test_an_archive_that_is_away_is_told(valkey_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    valkey_server.flush()
    async with engine(valkey_server.url, Settings(partitions=2)) as eng:
        await eng.pipeline("one", "util/echo")
        tx = await eng.start("one")

        async def away(*_: object) -> None:
            raise DatabaseUnreachable("The database can't be reached: it is away")

        database = Database("sqlite:////nowhere/archive.sqlite", eng.settings)
        monkeypatch.setattr(database, "search", away)
        page = await list_transactions(eng.store, database, SearchFilter())
        assert [line.tx_id for line in page.transactions] == [tx]
        assert page.unread == "The database can't be reached: it is away"


# ── limits and refusals ──────────────────────────────────────────────────────────────────────────────────────────


async def test_where_little_is_meant_of_much_a_page_is_short_and_the_next_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datp.api.listing.LOOKED_AT_MAX", 20)
    monkeypatch.setattr("datp.api.listing.PAGE", 5)
    states = [
        made(n, queue="in", event='{"kind":"start","at":0}', owner="bert" if n % 50 == 0 else "anna")
        for n in range(100)
    ]
    await restore.adopt(store, states)
    found: list[str] = []
    cursor, reads = "", 0
    while True:
        page = await list_transactions(store, None, SearchFilter(owner="bert"), cursor=cursor, limit=5)
        found += [line.tx_id for line in page.transactions]
        reads += 1
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert found == [tx_id(50), tx_id(0)] and 4 <= reads <= 8


async def test_many_that_began_in_the_same_millisecond_are_told_apart(store: Store) -> None:
    states = [made(n, queue="in", event='{"kind":"start","at":0}', started_at=NOW_MS) for n in range(50)]
    await restore.adopt(store, states)
    found = await pages(store, None, SearchFilter(), 7)
    assert [line.tx_id for line in found] == [tx_id(n) for n in reversed(range(50))]


async def test_a_cursor_or_a_filter_that_can_be_nobodys_is_refused(store: Store) -> None:
    for cursor in ("x", "12", "12.", ".tx", f"{'9' * 20}.{tx_id(1)}"):
        with pytest.raises(BadRequest):
            await list_transactions(store, None, SearchFilter(), cursor=cursor)
    for wanted in (SearchFilter(owner="a b"), SearchFilter(type="?"), SearchFilter(external_id="\0")):
        with pytest.raises(BadRequest):
            await list_transactions(store, None, wanted)
    with pytest.raises(NotFound):
        await list_transactions(store, None, SearchFilter(parent=tx_id(0, 900)))
