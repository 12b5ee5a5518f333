"""What is old enough goes, in small batches, and stays counted."""

import asyncio

import pytest
from archived import NOW_MS, made, tx_id

from datp.archive.database import Database, RolledUp, day_of
from datp.archive.logbook import LogEntry, LogLevel
from datp.archive.record import ArchivedState

DAY_MS = 86_400_000


def ended(number: int, days_ago: int, **fields: str) -> ArchivedState:
    """One that began ten days before it ended."""
    at = NOW_MS - days_ago * DAY_MS
    given = {"phase": "complete", "status": "success", **fields}
    return made(number, version=at, started_at=at - 10 * DAY_MS, **given)  # type: ignore[arg-type]


async def left(database: Database, numbers: int) -> list[int]:
    held = await database.read_states([tx_id(number) for number in range(numbers)])
    return [number for number in range(numbers) if tx_id(number) in held]


async def test_what_ended_before_goes_and_is_counted_by_its_day(database: Database) -> None:
    await database.write_states(
        [ended(0, 9), ended(1, 9), ended(2, 8, owner="bert", status="failed"), ended(3, 2), made(4, started_at=1)]
    )
    assert await database.delete_final(NOW_MS - 5 * DAY_MS) == 3
    assert await left(database, 5) == [3, 4]
    nine, eight = day_of(NOW_MS - 9 * DAY_MS), day_of(NOW_MS - 8 * DAY_MS)
    assert await database.rollup(nine, day_of(NOW_MS)) == [
        RolledUp(nine, "anna", "order", "success", 2),
        RolledUp(eight, "bert", "order", "failed", 1),
    ]
    assert await database.rollup(eight, eight) == [RolledUp(eight, "bert", "order", "failed", 1)]
    assert await database.delete_final(NOW_MS - 5 * DAY_MS) == 0


async def test_a_type_may_be_kept_longer_than_others(database: Database) -> None:
    await database.write_states([ended(0, 9), ended(1, 9, type="refund"), ended(2, 9)])
    assert await database.delete_final(NOW_MS, "refund") == 1
    assert await left(database, 3) == [0, 2]


async def test_a_batch_is_as_large_as_is_said_and_the_next_adds_to_the_count(database: Database) -> None:
    await database.write_states([ended(number, 9) for number in range(5)] + [ended(5, 9, status="aborted")])
    deleted = [await database.delete_final(NOW_MS, count=2) for _ in range(4)]
    assert deleted == [2, 2, 2, 0]
    day = day_of(NOW_MS - 9 * DAY_MS)
    assert {one.status: one.transactions for one in await database.rollup(day, day)} == {"success": 5, "aborted": 1}


async def test_branches_and_the_log_go_with_their_transaction(database: Database) -> None:
    await database.write_states(
        [ended(0, 9), ended(1, 9, parent=tx_id(0)), ended(2, 9, parent=tx_id(1)), ended(3, 9, parent=tx_id(9))]
    )
    said = [
        LogEntry(tx_id=tx_id(number), step_id="s", at_ms=1, level=LogLevel.INFO, source="x", text="y")
        for number in (0, 2, 3)
    ]
    await database.write_log(said)
    assert await database.delete_final(NOW_MS) == 1
    assert await left(database, 4) == [3]
    assert [len(await database.read_log(tx_id(number))) for number in (0, 2, 3)] == [0, 0, 1]


async def test_two_that_delete_at_once_count_once(database: Database) -> None:
    await database.write_states([ended(number, 9) for number in range(40)])
    await asyncio.gather(*(database.delete_final(NOW_MS, count=25) for _ in range(4)))
    while await database.delete_final(NOW_MS):
        pass
    day = day_of(NOW_MS - 9 * DAY_MS)
    assert [one.transactions for one in await database.rollup(day, day)] == [40]


@pytest.mark.parametrize("ms", [0, DAY_MS - 1])
def test_a_day_is_one_of_utc(ms: int) -> None:
    assert day_of(ms) == "1970-01-01"
