"""Operator events are counted, kept, told in the order of their last time, and begin anew after an acknowledgement."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from worker.support import Engine, until

from datp.archive.database import Database
from datp.archive.events import EventLog, EventMover, OperatorEvents, move
from datp.errors import DatabaseRefused, DatabaseUnreachable, NotFound, StoreLost, StoreUnreachable
from datp.hotstore.store import Parked
from datp.model.operator_event import EventCode, OperatorEvent, event_id

NOW_MS = 1_800_000_000_000


def event(subject: str = "a", at_ms: int = NOW_MS, count: int = 1, text: str = "it broke") -> OperatorEvent:
    code = EventCode.WEBHOOK_PAUSED
    return OperatorEvent(event_id(code, subject), code, subject, text, at_ms, at_ms, count)


@pytest.fixture
async def events(eng: Engine) -> AsyncIterator[OperatorEvents]:
    assert eng.archive is not None
    yield OperatorEvents(eng.store, eng.archive.database)


def log_of(eng: Engine) -> EventLog:
    assert eng.archive is not None
    return EventLog(eng.archive.database)


# ── in SQL ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_happens_again_is_counted(database: Database) -> None:
    log = EventLog(database)
    await log.add([event(count=2), event("b", NOW_MS + 5)])
    await log.add([event(at_ms=NOW_MS + 9, count=3, text="again")])
    await log.add([event(at_ms=NOW_MS + 4, text="told late")])
    first, second = await log.read(acknowledged=False, count=10)
    assert (first.subject, first.count, first.first_at, first.last_at, first.text) == (
        "a",
        6,
        NOW_MS,
        NOW_MS + 9,
        "again",
    )
    assert (second.subject, second.count) == ("b", 1)
    assert await log.read(acknowledged=False, count=1) == [first]


async def test_an_acknowledged_event_is_listed_only_when_asked_for_and_begins_anew(database: Database) -> None:
    log = EventLog(database)
    await log.add([event(count=7)])
    assert await log.acknowledge(event().id, "anna", NOW_MS + 1)
    assert not await log.acknowledge(event().id, "otto", NOW_MS + 2)
    assert await log.read(acknowledged=False, count=10) == []
    [seen] = await log.read(acknowledged=True, count=10)
    assert (seen.acknowledged_at, seen.acknowledged_by, seen.count) == (NOW_MS + 1, "anna", 7)
    await log.add([event(at_ms=NOW_MS + 9)])
    [again] = await log.read(acknowledged=False, count=10)
    assert (again.first_at, again.count, again.acknowledged_at, again.acknowledged_by) == (NOW_MS + 9, 1, None, "")


# ── on the way there ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_events_are_listed_from_the_moment_they_are_raised_and_moved_once(
    eng: Engine, events: OperatorEvents
) -> None:
    for _ in range(3):
        await events.raise_event(EventCode.WEBHOOK_PAUSED, "http://x", "10 deliveries failed")
    await events.raise_event(EventCode.CLOCK_SKEW, "n1\0\ud800", "late" * 2_000)
    before = await events.list()
    assert {(one.code, one.count) for one in before} == {("webhook-paused", 3), ("clock-skew", 1)}
    assert [one.id for one in before if one.code == "webhook-paused"] == [event_id("webhook-paused", "http://x")]
    await move(eng.store, log_of(eng))
    await move(eng.store, log_of(eng))
    assert {(one.id, one.count) for one in await events.list()} == {(one.id, one.count) for one in before}
    assert len(await log_of(eng).read(acknowledged=False, count=10)) == 2
    await events.raise_event(EventCode.WEBHOOK_PAUSED, "http://x", "11 deliveries failed")
    [one] = [one for one in await events.list() if one.code == "webhook-paused"]
    assert (one.count, one.text) == (4, "11 deliveries failed")


async def test_what_sql_could_not_take_is_due_again(
    eng: Engine, events: OperatorEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    await events.raise_event(EventCode.CLOCK_SKEW, "n1", "late")
    eng.store.settings = eng.with_settings(event_claim_ms=1)
    log = log_of(eng)

    async def is_away(given: Any) -> None:
        raise DatabaseUnreachable("away")

    with monkeypatch.context() as patch, pytest.raises(DatabaseUnreachable):
        patch.setattr(log, "add", is_away)
        await move(eng.store, log)

    async def moved() -> list[OperatorEvent]:
        await move(eng.store, log)
        return await log.read(acknowledged=False, count=10)

    assert [one.count for one in await until(moved, "the claim has run out")] == [1]


async def test_without_the_store_they_go_to_sql_at_once(
    eng: Engine, events: OperatorEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_lost(calls: Any) -> None:
        for call in calls:
            call.reply = StoreLost("another store")

    with monkeypatch.context() as patch:
        patch.setattr(eng.store.connection, "execute", is_lost)
        await events.raise_event(EventCode.STORE_LOST, "the hot store", "another store")
    [one] = await log_of(eng).read(acknowledged=False, count=10)
    assert (one.code, one.text) == ("store-lost", "another store")


async def test_raising_never_fails(eng: Engine, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    async def is_away(calls: Any) -> None:
        for call in calls:
            call.reply = StoreUnreachable("away")

    with monkeypatch.context() as patch:
        patch.setattr(eng.store.connection, "execute", is_away)
        await OperatorEvents(eng.store, None).raise_event(EventCode.STORE_DOWN, "the hot store", "away")
    assert "operator event store-down, the hot store: away" in caplog.text
    assert "is only logged: away" in caplog.text


async def test_one_that_is_not_in_sql_yet_can_be_acknowledged(eng: Engine, events: OperatorEvents) -> None:
    await events.raise_event(EventCode.CLOCK_SKEW, "n1", "late")
    [one] = await events.list()
    assert (await events.acknowledge(one.id, "anna")).subject == "n1"
    assert await events.list() == []
    assert [seen.acknowledged_by for seen in await events.list(acknowledged=True)] == ["anna"]
    await events.raise_event(EventCode.CLOCK_SKEW, "n1", "late")
    assert [again.count for again in await events.list()] == [1]
    with pytest.raises(NotFound, match="see: datp events"):
        await events.acknowledge("0" * 16, "anna")
    with pytest.raises(DatabaseRefused, match="kept in SQL"):
        await OperatorEvents(eng.store, None).acknowledge(one.id, "anna")


# ── where they come from ─────────────────────────────────────────────────────────────────────────────────────────


async def test_parking_raises_one_event_for_a_type_and_a_node_moves_it(eng: Engine, events: OperatorEvents) -> None:
    await eng.pipeline("broken", "util/echo")
    ids = await eng.start_many("broken", range(4))
    async with eng.store.turn() as turn:
        taken = [
            turn.dequeue(partition, group="main", node="n1", lane="0", turn=1, want=9, alone=False)
            for partition in range(eng.store.partitions)
        ]
    runs = [run for reply in taken for run in reply.value.taken]
    async with eng.store.turn() as turn:
        turn.park([Parked(run.tx_id, run.token, "it can't", "", "", "") for run in runs], [b""] * len(runs))
    [one] = await events.list()
    assert (one.code, one.subject, one.count) == ("transaction-parked", "broken", 4)
    assert one.text.endswith(": it can't") and one.text[:28] in ids
    assert eng.archive is not None
    mover = EventMover(eng.store, eng.archive.database, eng.settings)
    mover.start()
    await until(lambda: log_of(eng).read(acknowledged=False, count=10), "it is moved")
    await mover.stop()
    assert [kept.count for kept in await log_of(eng).read(acknowledged=False, count=10)] == [4]
    for run in runs:
        await eng.transactions.end_parked(run.tx_id, "failed", "")  # type: ignore[arg-type]
