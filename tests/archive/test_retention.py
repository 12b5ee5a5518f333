"""What is old enough goes, in small batches, and stays counted."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from archived import NOW_MS, made, tx_id
from worker.support import Engine, soon, until

from datp.archive.database import Database, RolledUp, day_of
from datp.archive.logbook import LogEntry, LogLevel
from datp.archive.record import ArchivedState
from datp.archive.retention import Retention, kept_types
from datp.clock import HeldClock
from datp.errors import BadDefinition
from datp.model.pipeline import parse_pipeline
from datp.settings import Settings

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


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
    assert await database.delete_final(NOW_MS - 5 * DAY_MS, "order") == 3
    assert await left(database, 5) == [3, 4]
    nine, eight = day_of(NOW_MS - 9 * DAY_MS), day_of(NOW_MS - 8 * DAY_MS)
    assert await database.rollup(nine, day_of(NOW_MS)) == [
        RolledUp(nine, "anna", "order", "success", 2),
        RolledUp(eight, "bert", "order", "failed", 1),
    ]
    assert await database.rollup(eight, eight) == [RolledUp(eight, "bert", "order", "failed", 1)]
    assert await database.delete_final(NOW_MS - 5 * DAY_MS, "order") == 0


async def test_a_type_may_be_kept_longer_than_others(database: Database) -> None:
    await database.write_states([ended(0, 9), ended(1, 9, type="refund"), ended(2, 9)])
    assert await database.delete_final(NOW_MS, "refund") == 1
    assert await left(database, 3) == [0, 2]


async def test_what_lives_or_is_owed_a_reply_stays(database: Database) -> None:
    await database.write_states([ended(0, 9), made(1, started_at=1), made(2, phase="exception", started_at=1)])
    given = {"phase": "complete", "status": "success", "webhook": '{"url":"http://a"}', "started_at": 1}
    await database.write_states([made(3, version=NOW_MS - 9 * DAY_MS, is_owed=True, **given)])
    assert await database.count_final(NOW_MS, "order") == 1
    assert await database.delete_final(NOW_MS, "order") == 1
    assert await left(database, 4) == [1, 2, 3]


async def test_a_batch_is_as_large_as_is_said_and_the_next_adds_to_the_count(database: Database) -> None:
    await database.write_states([ended(number, 9) for number in range(5)] + [ended(5, 9, status="aborted")])
    deleted = [await database.delete_final(NOW_MS, "order", count=2) for _ in range(4)]
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
    assert await database.delete_final(NOW_MS, "order") == 1
    assert await left(database, 4) == [3]
    assert [len(await database.read_log(tx_id(number))) for number in (0, 2, 3)] == [0, 0, 1]


async def test_two_that_delete_at_once_count_once(database: Database) -> None:
    await database.write_states([ended(number, 9) for number in range(40)])
    await asyncio.gather(*(database.delete_final(NOW_MS, "order", count=25) for _ in range(4)))
    while await database.delete_final(NOW_MS, "order"):
        pass
    day = day_of(NOW_MS - 9 * DAY_MS)
    assert [one.transactions for one in await database.rollup(day, day)] == [40]


@pytest.mark.parametrize("ms", [0, DAY_MS - 1])
def test_a_day_is_one_of_utc(ms: int) -> None:
    assert day_of(ms) == "1970-01-01"


# ── the loop that does it ────────────────────────────────────────────────────────────────────────────────────────


def retention(database: Database, own: dict[str, int], **more: Any) -> Retention:
    async def said() -> dict[str, int]:
        return own

    settings = replace(Settings(partitions=2), retention_batch=2, retention_pause_ms=0, **more)
    return Retention(database, said, settings, HeldClock(NOW_MS))


async def test_each_type_is_kept_as_long_as_its_pipeline_says_or_else_the_setting(database: Database) -> None:
    ages = {"order": [1, 9, 20], "quick": [0, 1, 9], "long": [9, 20, 40], "other": [9, 11, 12, 13, 14, 15]}
    numbers = iter(range(100))
    by_type = {name: [(next(numbers), days) for days in said] for name, said in ages.items()}
    await database.write_states(
        [ended(number, days, type=name) for name, said in by_type.items() for number, days in said]
    )
    assert await database.types() == ["long", "order", "other", "quick"]
    own = {"quick": DAY_MS // 2, "long": 30 * DAY_MS, "unknown": DAY_MS}
    assert [(one.type, one.for_ms // DAY_MS, one.is_own) for one in await kept_types(database, own, Settings())] == [
        ("long", 30, True),
        ("order", 0, False),
        ("other", 0, False),
        ("quick", 0, True),
    ]
    assert await retention(database, own).delete() == {"quick": 2, "long": 1}, "the others are kept for ever"
    assert await retention(database, own, retention_days=10).delete() == {"order": 1, "other": 5}
    assert await retention(database, own, retention_days=10).delete() == {}
    kept = [days for name in sorted(by_type) for number, days in by_type[name] if number in await left(database, 15)]
    assert kept == [9, 20, 1, 9, 9, 0]
    days = [one.day for one in await database.rollup("0000-01-01", "9999-12-31")]
    assert len(days) == 9 and sum(one.transactions for one in await database.rollup(days[0], days[-1])) == 9


async def test_it_deletes_by_itself_and_ends_between_two_batches(database: Database) -> None:
    await database.write_states([ended(number, 9) for number in range(7)])
    service = retention(database, {}, retention_days=1)
    service.start()
    await soon(service_deleted(database), "all are gone")
    await service.stop()
    await database.write_states([ended(number, 9) for number in range(7)])
    stopped = retention(database, {}, retention_days=1)
    stopped.stopping.set()
    assert await stopped.delete() == {}


async def service_deleted(database: Database) -> None:
    async def gone() -> bool:
        return not await database.types()

    await until(gone, "nothing is left")


async def test_an_archiving_node_deletes_what_its_pipeline_does_not_keep(eng: Engine) -> None:
    assert eng.archive is not None
    database = eng.archive.database
    await eng.pipeline("brief", "util/echo", retention="1h")
    await eng.pipeline("kept", "util/echo")
    await eng.node(roles="worker,archive", retention_interval_ms=20)
    ids = [await eng.start(name) for name in ("brief", "kept")]

    async def archived() -> bool:
        found = await database.read_states(ids)
        return len(found) == 2 and all(state.is_final for state in found.values())

    await until(archived, "both are in SQL")
    async with database.driver.writing() as connection:
        await connection.execute(
            f"UPDATE datp_transaction SET ended_at = ended_at - {2 * HOUR_MS}, started_at = started_at - {2 * HOUR_MS}"
        )

    async def gone() -> bool:
        return list(await database.read_states(ids)) == ids[1:]

    await until(gone, "the one is gone")
    assert {one.type for one in await database.rollup("0000-01-01", "9999-12-31")} == {"brief"}


def test_less_than_an_hour_is_refused() -> None:
    with pytest.raises(BadDefinition, match="an hour at least"):
        parse_pipeline({"name": "t", "steps": [{"id": "s", "step": "util/echo"}], "retention": "59m"}, Settings())
