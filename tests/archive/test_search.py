"""Search finds what a list would, newest first, page by page."""

from archived import NOW_MS, made, tx_id
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datp.archive.database import Database
from datp.archive.record import ArchivedState
from datp.archive.search import ArchivedBrief, Place, SearchFilter
from datp.model.status import FINAL, Status

PHASES = {Status.QUEUED: "queued", Status.RUNNING: "running", Status.SLEEPING: "sleeping", Status.WAITING: "joining"}

TRANSACTIONS = st.lists(
    st.tuples(
        st.sampled_from(list(Status)),
        st.sampled_from(["anna", "bert"]),
        st.sampled_from(["order", "refund"]),
        st.sampled_from(["", "", "x", "X"]),
        st.integers(0, 3),  # when: often together
        st.sampled_from(["", "", "", tx_id(90), tx_id(91)]),
    ),
    max_size=20,
)
FILTERS = st.builds(
    SearchFilter,
    status=st.sampled_from([None, None, *Status]),
    owner=st.sampled_from(["", "anna", "carl"]),
    type=st.sampled_from(["", "order", "none"]),
    external_id=st.sampled_from(["", "", "x"]),
    parent=st.sampled_from(["", "", "", tx_id(90)]),
    from_ms=st.sampled_from([0, NOW_MS + 1]),
    until_ms=st.sampled_from([None, NOW_MS, NOW_MS + 3]),
)


def is_meant(state: ArchivedState, wanted: SearchFilter) -> bool:
    """What the filter says."""
    return (
        wanted.status in (None, state.status)
        and wanted.type in ("", state.type)
        and wanted.owner in ("", state.owner)
        and wanted.external_id in ("", state.external_id)
        and (wanted.parent or None) in ((state.parent,) if not wanted.external_id else (None, state.parent))
        and state.started_at >= wanted.from_ms
        and (wanted.until_ms is None or state.started_at < wanted.until_ms)
    )


def state_of(number: int, said: tuple[Status, str, str, str, int, str]) -> ArchivedState:
    status, owner, type_, external_id, when, parent = said
    final = {"phase": "complete", "status": status.value} if status in FINAL else {"phase": PHASES[status]}
    return made(
        number,
        **final,  # type: ignore[arg-type]
        owner=owner,
        type=type_,
        external_id=external_id,
        started_at=NOW_MS + when,
        parent=parent,
    )


async def pages(database: Database, wanted: SearchFilter, count: int) -> list[ArchivedBrief]:
    """All pages, one after the other."""
    found: list[ArchivedBrief] = []
    after: Place | None = None
    while page := await database.search(wanted, after, count):
        found += page
        after = page[-1].place
        assert len(found) <= 20
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=TRANSACTIONS, filters=st.lists(FILTERS, min_size=1, max_size=4), count=st.integers(1, 7))
async def test_search_finds_what_the_list_holds(
    database: Database,
    said: list[tuple[Status, str, str, str, int, str]],
    filters: list[SearchFilter],
    count: int,
) -> None:
    async with database.driver.writing() as connection:
        await connection.execute("DELETE FROM datp_transaction")
    states = [state_of(number, one) for number, one in enumerate(said)]
    await database.write_states(states)
    for wanted in filters:
        meant = sorted(
            (state for state in states if is_meant(state, wanted)),
            key=lambda state: (state.started_at, state.tx_id),
            reverse=True,
        )
        assert [brief.tx_id for brief in await pages(database, wanted, count)] == [state.tx_id for state in meant]


async def test_a_line_says_what_columns_know(database: Database) -> None:
    state = made(phase="exception", external_id="Größe", group="side", sequence=NOW_MS - 5)
    await database.write_states([state])
    (brief,) = await database.search(SearchFilter())
    for name in ArchivedBrief.__struct_fields__:
        assert getattr(brief, name) == getattr(state, name), name
    assert brief.place == (state.started_at, state.tx_id)
