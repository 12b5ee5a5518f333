"""The guarded upsert beside a dict: whatever is written in whatever order, they hold the same."""

from archived import made
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datp.archive.database import Database
from datp.archive.record import ArchivedState

ENDS = [("complete", status) for status in ("success", "failed")]
WRITES = st.dictionaries(
    st.integers(0, 3),
    st.tuples(st.integers(1, 6), st.sampled_from([("queued", ""), ("sleeping", ""), ("exception", ""), *ENDS])),
    max_size=4,
)


def write_to_model(held: dict[str, ArchivedState], states: list[ArchivedState]) -> dict[str, int]:
    """What write_states promises."""
    answer = {}
    for state in states:
        old = held.get(state.tx_id)
        if old is None or (state.version > old.version and (not old.is_final or state.status == old.status)):
            held[state.tx_id] = state
        elif old.version != state.version:
            answer[state.tx_id] = old.version
    return answer


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(WRITES, min_size=1, max_size=6))
async def test_the_database_holds_what_the_model_holds(
    database: Database, batches: list[dict[int, tuple[int, tuple[str, str]]]]
) -> None:
    async with database.driver.writing() as connection:
        await connection.execute("DELETE FROM datp_transaction")
    held: dict[str, ArchivedState] = {}
    for number, batch in enumerate(batches):
        states = [
            made(tx, version=version, phase=phase, status=status, note=f"batch {number}")
            for tx, (version, (phase, status)) in batch.items()
        ]
        assert await database.write_states(states) == write_to_model(held, states)
        assert await database.read_states(list(held)) == held
    live = sorted(tx_id for tx_id, state in held.items() if not state.is_final)
    assert [state.tx_id for state in await database.live_states()] == live
