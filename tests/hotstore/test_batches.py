"""Every item of a batch is handled alone: one that is broken gets its own answer, and its neighbours go on."""

from collections.abc import Callable
from typing import Final

import pytest
from driver import LATER_MS, Driver

from datp.hotstore.store import Completion, Forked

Damage = Callable[[Driver, str], object]


def _lose(field: str) -> Damage:
    return lambda hot, tx_id: hot.raw.hdel(hot.key("state", tx_id=tx_id), field)


def _set(field: str, value: str) -> Damage:
    return lambda hot, tx_id: hot.raw.hset(hot.key("state", tx_id=tx_id), field, value)


def _retype(name: str) -> Damage:
    def damage(hot: Driver, tx_id: str) -> None:
        hot.raw.delete(hot.key(name, tx_id=tx_id))
        hot.raw.rpush(hot.key(name, tx_id=tx_id), "a list")
        if name == "switches":
            hot.raw.hset(hot.key("state", tx_id=tx_id), "switches", "1")

    return damage


def _vanish(hot: Driver, tx_id: str) -> object:
    return hot.raw.delete(hot.key("state", tx_id=tx_id))


BROKEN: Final[dict[str, Damage]] = {
    **{
        f"no {field}": _lose(field)
        for field in ("phase", "version", "event", "state", "owner", "type", "group", "queue")
    },
    "no state": _vanish,
    "a list for a state": _retype("state"),
    "a list for switches": _retype("switches"),
    **{f"{field} is no number": _set(field, "abc") for field in ("version", "losses", "started_at", "deadline")},
}


@pytest.mark.corrupts
@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN)
async def test_one_broken_state_among_a_hundred_goes_to_the_exception_list_alone(damage: Damage, hot: Driver) -> None:
    ids = await hot.queued(100)
    damage(hot, ids[50])
    dequeued = await hot.take(100)
    assert [taken.tx_id for taken in dequeued.taken] == [*ids[:50], *ids[51:]]
    assert not dequeued.is_left
    assert hot.raw.zrange(hot.key("exceptions"), 0, -1) == [ids[50]]
    assert '"from":"in main ' in hot.raw.hget(hot.key("reasons"), ids[50])


@pytest.mark.corrupts
@pytest.mark.parametrize(
    "damage",
    [BROKEN[name] for name in ("no state", "a list for a state", "version is no number", "no phase")],
    ids=["no state", "a list for a state", "version is no number", "no phase"],
)
async def test_one_broken_state_does_not_keep_a_hundred_from_completing(damage: Damage, hot: Driver) -> None:
    await hot.queued(100)
    runs = (await hot.take(100)).taken
    damage(hot, runs[50].tx_id)
    items = [Completion(run.tx_id, run.token, "success", "", "null", "") for run in runs]
    async with hot.store.turn() as turn:
        reply = turn.complete(items, [b"{}"] * 100)
    codes = [result.code for result in reply.value]
    assert codes[50] in ("NO_STATE", "RAISED")
    assert codes[:50] + codes[51:] == ["OK"] * 99
    assert {hot.phase(run.tx_id) for run in runs if run is not runs[50]} == {"complete"}


@pytest.mark.corrupts
async def test_a_sleeper_that_can_not_be_read_does_not_keep_others_from_waking(hot: Driver) -> None:
    runs = [await hot.running() for _ in range(3)]
    for run in runs:
        await hot.sleep(run, 100)
    _retype("state")(hot, runs[0].tx_id)
    _set("version", "abc")(hot, runs[1].tx_id)
    hot.clock.advance(100)
    happened = {tx_id: what for tx_id, what, _ in await hot.woken()}
    assert happened == {runs[0].tx_id: "PARKED", runs[1].tx_id: "PARKED", runs[2].tx_id: "WOKEN"}
    assert await hot.woken() == []


@pytest.mark.corrupts
async def test_a_run_that_can_not_be_read_does_not_keep_others_from_being_reaped(hot: Driver) -> None:
    broken, sound = await hot.running(), await hot.running()
    _retype("state")(hot, broken.tx_id)
    happened = {tx_id: what for tx_id, what, _ in await hot.lose_lease(broken, sound)}
    assert happened == {broken.tx_id: "PARKED", sound.tx_id: "REQUEUED"}
    assert hot.score("exceptions", broken.tx_id) is not None


@pytest.mark.corrupts
async def test_a_deadline_of_something_unreadable_is_brought_up_once(hot: Driver) -> None:
    broken, sound = await hot.queued(2, deadline_in_ms=100)
    _retype("state")(hot, broken)
    hot.clock.advance(100)
    assert {tx_id: what for tx_id, what, _ in await hot.reaped()} == {broken: "PARKED", sound: "OK"}
    assert await hot.reaped() == []


@pytest.mark.corrupts
async def test_a_state_that_can_not_be_read_does_not_stop_the_archiver(hot: Driver) -> None:
    broken, sound = await hot.running(), await hot.running()
    await hot.complete(broken)
    await hot.complete(sound)
    _retype("state")(hot, broken.tx_id)
    hot.clock.advance(LATER_MS)
    assert [one.tx_id for one in (await hot.archive()).claimed] == [sound.tx_id]
    assert hot.score("exceptions", broken.tx_id) is not None


@pytest.mark.corrupts
async def test_the_statistics_survive_a_broken_state(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    _retype("state")(hot, tx_id)
    async with hot.store.turn() as turn:
        reply = turn.queue_stats(0)
    assert reply.value[1] == [[b"main", 1, 0, b"", b""]]


@pytest.mark.corrupts
async def test_a_final_status_never_changes_not_even_for_a_broken_queue(hot: Driver) -> None:
    """An id that a lost write left in a list does not bring an ended transaction to the exception list."""
    run = await hot.running()
    await hot.complete(run)
    hot.raw.rpush(hot.key("queue", queue="In", group="main"), run.tx_id)
    assert (await hot.take()).taken == []
    assert hot.phase(run.tx_id) == "complete"
    assert hot.score("exceptions", run.tx_id) is None


async def test_an_id_that_is_listed_twice_is_run_once(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    hot.raw.rpush(hot.key("queue", queue="In", group="main"), tx_id)
    assert [taken.tx_id for taken in (await hot.take(10)).taken] == [tx_id]


async def test_a_batch_may_be_larger_than_what_a_lua_stack_holds(hot: Driver) -> None:
    """Ninety parents fork a hundred branches each: 9 000 ids for one list, 18 000 values for one sorted set."""
    await hot.queued(90, deadline_in_ms=LATER_MS)
    items = []
    for run in (await hot.take(90)).taken:
        branches = [hot.branch(run.tx_id, place) for place in range(100)]
        items.append(Forked(run.tx_id, run.token, "main", "{}", 100, 0, branches))
    async with hot.store.turn() as turn:
        reply = turn.fork(items, [b"{}"] * 90)
    assert {result.code for result in reply.value} == {"OK"}
    assert hot.raw.llen(hot.key("queue", queue="In", group="side")) == 9_000
    assert hot.raw.zcard(hot.key("deadlines")) == 90 + 9_000


async def test_items_of_several_partitions_are_answered_in_their_order(hot: Driver) -> None:
    ids = [hot.new_id(partition) for partition in (1, 0, 1, 1, 0)]
    await hot.start(ids[0])
    await hot.start(ids[4])
    async with hot.store.turn() as turn:
        cancelled = turn.cancel([(tx_id, "enough") for tx_id in ids])
        found = turn.get_state(ids)
    assert [result.code for result in cancelled.value] == ["OK", "NO_STATE", "NO_STATE", "NO_STATE", "OK"]
    fields = [getattr(one, "fields", {}) for one in found.value]
    assert [one.get("status") for one in fields] == [b"cancelled", None, None, None, b"cancelled"]


async def test_a_call_with_a_document_too_few_is_not_sent(hot: Driver) -> None:
    run = await hot.running()
    item = Completion(run.tx_id, run.token, "success", "", "null", "")
    with pytest.raises(AssertionError, match="2 items and 1 documents"):
        hot.store.turn().complete([item, item], [b"{}"])
