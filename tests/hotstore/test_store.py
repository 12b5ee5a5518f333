"""A store knows who it is, answers at its memory limit, and survives what happens to a server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from driver import LATER_MS, Driver
from servers import Cluster, Server

from datp.clock import HeldClock
from datp.errors import StartRefused, StoreError, StoreFull, StoreLost, StoreUnreachable
from datp.hotstore.invariants import broken_invariants
from datp.hotstore.scripts import scripts
from datp.hotstore.store import Completion, Start, Store, Turn
from datp.settings import Settings

CHECKED: Final = sorted(set(scripts()) - {"open_store", "rename_store"})


async def _call_anything(hot: Driver, script: str) -> Any:
    """A call of this script; what it is given does not matter when the store refuses all."""
    turn: Turn = hot.store.turn()
    call = turn._call(script, 0, dict.fromkeys(scripts()[script].contract.args, 0))
    await turn.send()
    return call.reply


# ── who it is ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("script", CHECKED)
async def test_a_store_that_came_back_empty_refuses_every_script(script: str, hot: Driver) -> None:
    hot.raw.flushall()
    error = await _call_anything(hot, script)
    assert isinstance(error, StoreLost) and "'empty'" in str(error)
    assert hot.raw.dbsize() == 0


@pytest.mark.parametrize("script", CHECKED)
async def test_another_store_refuses_every_script(script: str, hot: Driver) -> None:
    mine = hot.raw.hget(hot.key("meta"), "identity")
    hot.raw.hset(hot.key("meta"), "identity", "abc/2/2/1")
    before = hot.raw.dbsize()
    assert isinstance(await _call_anything(hot, script), StoreLost)
    assert hot.raw.dbsize() == before
    hot.raw.hset(hot.key("meta"), "identity", mine)


async def test_only_the_partition_that_was_lost_refuses(hot: Driver) -> None:
    hot.raw.delete(hot.key("meta", 1))
    assert (await hot.start(partition=0)).code == "OK"
    with pytest.raises(StoreLost):
        await hot.start(partition=1)


def _another(hot: Driver, **settings: Any) -> Store:
    return Store(hot.store.url, Settings(**settings), hot.clock)


async def test_opening_a_known_store_keeps_its_identity_and_its_partitions(hot: Driver) -> None:
    other = _another(hot, partitions=8)
    await other.open(create=True)
    assert (other.identity, other.partitions) == (hot.store.identity, 2)
    await other.close()


async def test_opening_an_empty_store_says_what_may_have_happened(hot: Driver) -> None:
    hot.raw.flushall()
    other = _another(hot)
    with pytest.raises(StoreLost, match="empty"):
        await other.open()
    await other.close()


async def test_opening_a_store_with_a_lost_partition_is_refused(hot: Driver) -> None:
    hot.raw.delete(hot.key("meta", 1))
    other = _another(hot)
    with pytest.raises(StoreLost, match="Partition 1"):
        await other.open(create=True)
    await other.close()


async def test_a_store_of_another_schema_is_refused(hot: Driver) -> None:
    for name in hot.raw.scan_iter("metaH:*"):
        hot.raw.hset(name, "identity", "abc/1/2/99")
    other = _another(hot)
    with pytest.raises(StartRefused, match="schema 99"):
        await other.open()
    await other.close()


async def test_the_stores_clock_decides_unless_it_is_held(hot: Driver) -> None:
    [held] = await hot.queued()
    assert hot.field(held, "version") == str(hot.clock.now_ms())
    for name in hot.raw.scan_iter("metaH:*"):
        hot.raw.hset(name, "clock", "")
    [free] = await hot.queued()
    assert int(hot.field(free, "version")) > hot.clock.now_ms() + LATER_MS


# ── at the memory limit ──────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _full(hot: Driver) -> Iterator[None]:
    hot.raw.config_set("maxmemory-policy", "noeviction")
    hot.raw.config_set("maxmemory", 1)
    try:
        yield
    finally:
        hot.raw.config_set("maxmemory", 0)


async def test_at_the_memory_limit_nothing_new_starts(hot: Driver) -> None:
    await hot.queued()
    with _full(hot):
        with pytest.raises(StoreFull):
            await hot.start()
        with pytest.raises(StoreFull):
            await hot.take()
    assert len((await hot.take(10)).taken) == 1


async def test_at_the_memory_limit_everything_that_runs_can_finish(hot: Driver) -> None:
    ends = [await hot.running(webhook='{"url":"u"}') for _ in range(7)]
    branches = (await hot.joining(2))[1]
    asleep = await hot.running()
    await hot.sleep(asleep, 10)
    away = await hot.evicted()
    [queued] = await hot.queued(group="other")
    with _full(hot):
        assert (await hot.complete(ends[0])).code == "OK"
        assert (await hot.requeue(ends[1])).code == "OK"
        assert (await hot.sleep(ends[2])).code == "OK"
        assert (await hot.checkpoint(ends[3])).code == "OK"
        assert (await hot.park(ends[4])).code == "OK"
        assert [result.code for result in await hot.give_back(ends[5])] == ["OK"]
        assert (await hot.complete(branches[0])).code == (await hot.complete(branches[1])).code == "OK"
        assert [result.code for result in await hot.renew(ends[6])] == ["OK"]
        assert (await hot.cancel(queued)).code == "OK"
        assert (await hot.restore(away, "cancel", "enough")).code == "OK"
        hot.clock.advance(10)
        assert (asleep.tx_id, "WOKEN", "") in await hot.woken()
        assert len((await hot.archive()).claimed) > 0
        assert len((await hot.webhooks()).claimed) == 1
        assert (await hot.get(ends[0].tx_id)) is not None
        await hot.reap()


# ── what happens to a server ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_flushed_script_cache_is_survived(hot: Driver) -> None:
    for _ in range(3):
        hot.raw.script_flush()
        run = await hot.running()
        hot.raw.script_flush()
        assert (await hot.complete(run)).code == "OK"


async def test_a_flushed_script_cache_is_survived_by_a_turn_of_many_calls(hot: Driver) -> None:
    run = await hot.running()
    [one, two] = [hot.new_id(0), hot.new_id(1)]
    hot.raw.script_flush()
    async with hot.store.turn() as turn:
        done = turn.complete([Completion(run.tx_id, run.token, "success", "", "null", "")], [b"{}"])
        items = [Start(tx_id, "acme", "", "", "order", "1", "main", 0, "", "hot") for tx_id in (one, two)]
        started = turn.enqueue(items, [b"{}"] * 2)
        swept = [turn.reap(partition, 1) for partition in range(2)]
    assert [result.code for result in [*done.value, *started.value]] == ["OK"] * 3
    assert [one.value.happened for one in swept] == [[], []]


async def test_an_error_of_one_call_is_that_calls_alone(hot: Driver) -> None:
    hot.raw.delete(hot.key("meta", 1))
    async with hot.store.turn() as turn:
        fine, lost = turn.reap(0, 1), turn.reap(1, 1)
    assert fine.value.happened == []
    assert isinstance(lost.error, StoreLost)


async def test_a_store_that_can_not_be_reached_says_so() -> None:
    store = Store("unix:///nowhere/at/all.sock", Settings(), HeldClock())
    with pytest.raises(StoreUnreachable):
        await store.open()
    await store.close()


async def test_an_error_does_not_show_the_password() -> None:
    store = Store("redis://me:secret@127.0.0.1:1/0", Settings(), HeldClock())
    with pytest.raises(StoreError) as caught:
        await store.open()
    assert "secret" not in str(caught.value)
    await store.close()


async def test_the_checker_refuses_to_write(hot: Driver) -> None:
    with pytest.raises(AssertionError, match="is a script"):
        await hot.store.connection.read(0, [("DEL", "x")])


# ── other engines, and a cluster ─────────────────────────────────────────────────────────────────────────────────


async def _life(store: Store, clock: HeldClock, raw: Any) -> None:
    """A little of everything, in every partition."""
    hot = Driver(store, clock, raw)
    for partition in range(store.partitions):
        run = await hot.running(partition=partition, external_id="e", webhook='{"url":"u","progress":true}')
        await hot.report_progress(run)
        await hot.set_switch(run.tx_id)
        assert (await hot.wait(run)).code == "WOKEN"
        again = await hot.take_one(run.tx_id, partition=partition)
        await hot.sleep(again, 10)
        clock.advance(10)
        assert await hot.woken(partition) == [(run.tx_id, "WOKEN", "")]
        last = await hot.take_one(run.tx_id, partition=partition)
        assert (await hot.complete(last)).code == "OK"
        parent, branches = await hot.joining(2, partition=partition)
        assert await broken_invariants(store) == []
        for branch in branches:
            await hot.complete(branch)
        assert (await hot.take_one(parent, partition=partition)).join
        asleep = await hot.running(partition=partition)
        await hot.sleep(asleep, LATER_MS)
        await hot.cancel(asleep.tx_id)
        assert len((await hot.webhooks(partition=partition)).claimed) == 1
        assert await store.hear_bell(["main"], 1) is not None
    assert await broken_invariants(store) == []


@pytest.fixture
async def elsewhere(
    request: pytest.FixtureRequest, settings: Settings, clock: HeldClock
) -> AsyncIterator[tuple[Store, Any]]:
    server: Server | Cluster = request.getfixturevalue(request.param)
    server.flush()
    store = Store(server.url, settings, clock)
    await store.open(create=True, held=True)
    try:
        yield store, server.client() if isinstance(server, Server) else None
    finally:
        await store.close()


@pytest.mark.redis7
@pytest.mark.parametrize("elsewhere", ["redis7_server"], indirect=True)
async def test_all_of_it_runs_on_redis_7(elsewhere: tuple[Store, Any], clock: HeldClock) -> None:
    await _life(elsewhere[0], clock, elsewhere[1])


@pytest.mark.cluster
@pytest.mark.parametrize("elsewhere", ["cluster_server"], indirect=True)
async def test_all_of_it_runs_on_a_cluster(elsewhere: tuple[Store, Any], clock: HeldClock) -> None:
    store, _ = elsewhere
    assert store.connection.shards == 2
    await _life(store, clock, None)


async def test_two_turns_at_once_do_not_disturb_each_other(hot: Driver) -> None:
    await hot.queued(40)
    taken = await asyncio.gather(*(hot.take(1, lane=str(lane)) for lane in range(40)))
    assert len({one.taken[0].tx_id for one in taken}) == 40
