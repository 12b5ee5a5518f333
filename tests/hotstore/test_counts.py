"""Counts: exact, made in the script that does what is counted, in time slots of three widths."""

import pytest
from driver import Driver

WIDTHS_S = {1: 5, 2: 100, 3: 1000}


def _slot(hot: Driver, series: int) -> int:
    seconds = hot.clock.now_ms() // 1000
    return seconds - seconds % WIDTHS_S[series]


async def _counts(hot: Driver, series: int, slot: int, partition: int = 0) -> dict[str, int]:
    async with hot.store.turn() as turn:
        reply = turn.read_counts(partition, [(series, slot)])
    return reply.value[0]


@pytest.mark.parametrize("series", WIDTHS_S)
async def test_starts_and_ends_are_counted_in_their_slot(series: int, hot: Driver) -> None:
    await hot.queued(5)
    for run, status in zip((await hot.take(3)).taken, ("success", "success", "failed"), strict=True):
        await hot.complete(run, status)
    assert await _counts(hot, series, _slot(hot, series)) == {
        "started|acme|order|main": 5,
        "completed|success|acme|order|main": 2,
        "completed|failed|acme|order|main": 1,
    }


@pytest.mark.parametrize("series", WIDTHS_S)
async def test_a_slot_ends_where_the_next_begins(series: int, hot: Driver) -> None:
    width_ms = WIDTHS_S[series] * 1000
    hot.clock.advance(width_ms - hot.clock.now_ms() % width_ms - 1)
    first = _slot(hot, series)
    await hot.queued(1)
    hot.clock.advance(1)
    await hot.queued(2)
    assert [
        (await _counts(hot, series, slot))["started|acme|order|main"] for slot in (first, first + width_ms // 1000)
    ] == [1, 2]


async def test_what_was_refused_or_repeated_is_not_counted(hot: Driver) -> None:
    [tx_id] = await hot.queued(external_id="e")
    await hot.start(tx_id)
    await hot.start(external_id="e")
    await hot.start(external_id="e", request_hash="h2")
    run = await hot.take_one(tx_id)
    await hot.complete(run)
    await hot.complete(run)
    await hot.cancel(tx_id)
    assert await _counts(hot, 1, _slot(hot, 1)) == {
        "started|acme|order|main": 1,
        "completed|success|acme|order|main": 1,
    }


async def test_a_cancel_counts_as_an_end_whichever_script_brought_it(hot: Driver) -> None:
    first, second = await hot.queued(2, deadline_in_ms=10)
    await hot.cancel(first)
    hot.clock.advance(10)
    await hot.reap()
    counts = await _counts(hot, 3, _slot(hot, 3))
    assert second and counts["completed|cancelled|acme|order|main"] == counts["completed|timeout|acme|order|main"] == 1


async def test_branches_are_counted_apart(hot: Driver) -> None:
    _, branches = await hot.joining(2)
    await hot.complete(branches[0])
    counts = await _counts(hot, 1, _slot(hot, 1))
    assert counts["branch-started|acme|branch0|side"] == counts["branch-completed|success|acme|branch0|side"] == 1
    assert [name for name in counts if name.startswith("completed")] == []


async def test_slots_are_kept_for_a_while(hot: Driver) -> None:
    await hot.queued()
    for series, kept_s in ((1, 300), (2, 7_200), (3, 86_400)):
        name = hot.key("metric", series=str(series), slot=str(_slot(hot, series)))
        assert kept_s <= hot.raw.ttl(name) <= kept_s + WIDTHS_S[series]


async def test_a_repeated_flush_counts_once_and_the_next_one_again(hot: Driver) -> None:
    home = hot.store.home("p1")

    async def flush(number: int) -> list[str]:
        async with hot.store.turn() as turn:
            reply = turn.flush_counts("p1", number, [("steps|ping", 3), ("replies", 1)])
        return [result.code for result in reply.value]

    assert await flush(1) == ["OK", "OK"]
    assert await flush(1) == ["ALREADY", "ALREADY"]
    assert await flush(2) == ["OK", "OK"]
    assert await _counts(hot, 1, _slot(hot, 1), home) == {"steps|ping": 6, "replies": 2}
