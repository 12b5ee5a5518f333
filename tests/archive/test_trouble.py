"""SQL goes away, the archiver dies, the store loses what it had: nothing is lost, and nothing is stored twice."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis
from worker.support import Engine, until

from datp.archive.archiver import Archiver
from datp.archive.database import Database
from datp.archive.events import OperatorEvents
from datp.archive.rebuild import rebuild
from datp.archive.reconciler import reconcile
from datp.archive.record import ArchivedState, archived_state
from datp.errors import DatabaseRefused, DatabaseUnreachable, StoreLost
from datp.hotstore.store import Archivable, Store
from datp.model.ids import TransactionId
from datp.steps import Context
from datp.worker.node import Node


def archiver_of(node: Node) -> Archiver:
    [archiver] = [service for service in node._role_services if isinstance(service, Archiver)]
    return archiver


def sql(eng: Engine) -> Database:
    assert eng.archive is not None
    return eng.archive.database


async def backlog(eng: Engine) -> int:
    async with eng.store.turn() as turn:
        stats = [turn.queue_stats(partition) for partition in range(eng.store.partitions)]
    sizes = [dict(zip(reply.value[2][0::2], reply.value[2][1::2], strict=True)) for reply in stats]
    return sum(size[b"to_archive"] for size in sizes)


async def archived(eng: Engine, ids: list[TransactionId]) -> None:
    """SQL has the ends of all of these, and nothing is left to be archived."""

    async def done() -> bool:
        try:
            found = await sql(eng).read_states(ids)
        except DatabaseUnreachable:  # a connection that did not outlive its server
            return False
        return len(found) == len(ids) and all(state.is_final for state in found.values()) and not await backlog(eng)

    await until(done, "everything is archived", 20)


async def kept(eng: Engine, tx_id: str) -> ArchivedState:
    """What is in the store now, as SQL would keep it."""
    async with eng.store.turn() as turn:
        reply = turn.read_states([tx_id])
    found = reply.value[0]
    assert isinstance(found, Archivable)
    return archived_state(tx_id, found.version, found.fields)


async def forget(eng: Engine, *tx_ids: str) -> None:
    """The store loses everything about these, as a server that lost its last second would."""
    async with Redis.from_url(eng.store.url) as redis:
        for tx_id in tx_ids:
            tag = eng.store.tags[int(tx_id[4], 32)]
            for kind in ("stateH", "switchH", "joinH"):
                await redis.delete(f"{kind}:{tag}:{tx_id}")
            for place in (
                *(
                    "processingZ",
                    "runningZ",
                    "sleepingZ",
                    "joiningZ",
                    "deadlineZ",
                    "toArchiveZ",
                    "exceptionZ",
                    "startedZ",
                ),
            ):
                await redis.zrem(f"{place}:{tag}", tx_id)
            await redis.hdel(f"evictedH:{tag}", tx_id)
            for queue in ("qInL", "qOutL"):
                await redis.lrem(f"{queue}:{tag}:main", 0, tx_id)


# ── SQL goes away ────────────────────────────────────────────────────────────────────────────────────────────────


class Breaker:
    """Stands before a database and breaks it on demand."""

    def __init__(self, database: Database) -> None:
        self.is_away = False
        self.calls = 0
        self._write = database.write_states
        database.write_states = self  # type: ignore[method-assign]

    async def __call__(self, states: list[ArchivedState]) -> dict[str, int]:
        self.calls += 1
        if self.is_away:
            raise DatabaseUnreachable("away, on purpose")
        return await self._write(states)


async def test_while_sql_is_away_work_goes_on_and_the_backlog_drains_afterwards(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo")
    node = await eng.node(roles="worker,archive")
    breaker = Breaker(node.archive.database)  # type: ignore[union-attr]
    breaker.is_away = True
    ids = await eng.start_many("one", range(300))
    assert await eng.finals(ids) == ["success"] * 300, "what runs doesn't wait for SQL"
    await until(lambda: _is(breaker.calls >= 3), "it was tried again")
    assert await sql(eng).read_states(ids) == {}
    assert await backlog(eng) == 300, "nothing was acknowledged"
    breaker.is_away = False
    await archived(eng, ids)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_a_real_server_that_is_killed_and_comes_back(
    eng: Engine, kind: str, servers: Callable[[str], Any]
) -> None:
    server = servers(kind)
    await eng.pipeline("one", "util/echo")
    await eng.node(roles="worker,archive")
    first = await eng.start_many("one", range(50))
    await archived(eng, first)
    server.kill()
    second = await eng.start_many("one", range(200))
    assert await eng.finals(second) == ["success"] * 200
    server.start()
    await archived(eng, first + second)


# ── the archiver dies ────────────────────────────────────────────────────────────────────────────────────────────


class Died(Exception):
    """The process is gone at this very place."""


CRASH_POINTS = ["before it is written", "after it is written", "after it is acknowledged"]


@pytest.mark.parametrize("point", CRASH_POINTS)
async def test_an_archiver_that_dies_loses_nothing_and_stores_nothing_twice(point: str, eng: Engine) -> None:
    await eng.pipeline("one", "util/echo")
    await eng.node()
    ids = await eng.start_many("one", range(40))
    assert await eng.finals(ids) == ["success"] * 40
    before = {tx_id: await kept(eng, tx_id) for tx_id in ids}

    dying = Archiver(
        eng.store, sql(eng), replace(eng.settings, archive_batch=16), "dying", OperatorEvents(eng.store, sql(eng))
    )
    write, exchange = dying._write, dying._exchange
    exchanges = 0

    async def dies_writing() -> None:
        if point == CRASH_POINTS[0]:
            raise Died
        await write()
        if point == CRASH_POINTS[1]:
            raise Died

    async def dies_acknowledging(want: int) -> list[ArchivedState]:
        nonlocal exchanges
        claimed = await exchange(want)
        exchanges += 1
        if point == CRASH_POINTS[2] and exchanges == 3:
            raise Died
        return claimed

    dying._write, dying._exchange = dies_writing, dies_acknowledging  # type: ignore[method-assign]
    with pytest.raises(Died):
        while True:
            await dying.turn()

    await eng.node(roles="archive")
    await archived(eng, ids)
    found = await sql(eng).read_states(ids)
    assert {tx_id: state.version for tx_id, state in found.items()} == {
        tx_id: state.version for tx_id, state in before.items()
    }


async def test_an_archiver_that_stops_acknowledges_what_it_has_written(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo")
    await eng.node()
    ids = await eng.start_many("one", range(30))
    await eng.finals(ids)
    node = await eng.node(roles="archive")
    await until(lambda: _is(archiver_of(node).archived > 0), "it has begun")
    await node.stop()
    stored = {tx_id for tx_id, state in (await sql(eng).read_states(ids)).items() if state.is_final}
    waiting = await backlog(eng)
    assert len(stored) + waiting == 30, "what was stored is acknowledged, and nothing else"
    again = Archiver(eng.store, sql(eng), eng.settings, "next", OperatorEvents(eng.store, sql(eng)))
    await again.turn()
    assert waiting == 0 or again._unwritten, "the role was given up: the next one has it at once"
    await again.stop()
    await archived(eng, ids)


async def test_two_archivers_share_the_work(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo")
    nodes = [await eng.node(roles="worker,archive", archive_batch=10) for _ in range(2)]
    ids = await eng.start_many("one", range(400))
    await eng.finals(ids)
    await archived(eng, ids)
    assert sum(archiver_of(node).archived for node in nodes) >= 400


# ── what can't be stored ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_poison_state_is_set_aside_and_the_others_are_stored(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo")
    await eng.node()
    ids = await eng.start_many("one", range(10))
    await eng.finals(ids)
    poison, others = ids[3], ids[:3] + ids[4:]
    async with Redis.from_url(eng.store.url) as redis:
        tag = eng.store.tags[int(poison[4], 32)]
        await redis.hset(f"stateH:{tag}:{poison}", "sequence", "no number")
        await eng.node(roles="archive")

        async def set_aside() -> bool:
            return bool(await redis.hget(f"stateH:{tag}:{poison}", "unarchivable"))

        await until(set_aside, "it is set aside", 20)
        found = await sql(eng).read_states(ids)
        assert sorted(found) == sorted(others)
        assert await redis.pttl(f"stateH:{tag}:{poison}") == -1, "it stays in memory"
        await redis.hset(f"stateH:{tag}:{poison}", "sequence", "1700000000000")


# ── the store loses what it had, and SQL is ahead ────────────────────────────────────────────────────────────────


async def test_what_the_store_has_lost_is_put_back_and_goes_on(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("two", {"step": "test/held", "checkpoint": True})
    await eng.node(roles="worker,archive")
    tx_id = await eng.start("two", 1)
    await held.began()

    async def snapshot() -> bool:
        return tx_id in await sql(eng).read_states([tx_id])

    await until(snapshot, "SQL has the checkpoint")
    await forget(eng, tx_id)
    assert await reconcile(eng.store, sql(eng), 10) == 1
    await held.began(2)
    held.let_go("done")
    assert (await eng.final(tx_id)).status == "success"
    await archived(eng, [tx_id])
    assert await reconcile(eng.store, sql(eng), 10) == 0


async def test_what_ended_meanwhile_is_not_put_back(eng: Engine) -> None:
    """SQL's live row was read; then it ended, was archived, and memory forgot it."""
    held = eng.held()
    await eng.pipeline("two", {"step": "test/held", "checkpoint": True})
    await eng.node(roles="worker,archive")
    tx_id = await eng.start("two", 1)
    await held.began()

    async def snapshot() -> bool:
        return tx_id in await sql(eng).read_states([tx_id])

    await until(snapshot, "SQL has the checkpoint")
    page = sql(eng).live_versions

    async def page_then_end(*given: Any) -> list[tuple[str, int]]:
        found = await page(*given)
        held.let_go()
        await eng.final(tx_id)
        await archived(eng, [tx_id])
        await forget(eng, tx_id)
        return found

    sql(eng).live_versions = page_then_end  # type: ignore[method-assign]
    assert await reconcile(eng.store, sql(eng), 10) == 0
    assert (await eng.transactions.reply(tx_id)).status == "success"


async def test_an_end_that_was_archived_stays_though_the_store_forgot_it(eng: Engine) -> None:
    """The store lost its last second: the transaction runs again there, and ends in another way."""
    ends = iter(["success", "failed"])

    async def end(context: Context) -> Any:
        from datp.steps import Failed

        return Failed(note="the second time") if next(ends) == "failed" else "the first time"

    eng.step("test/end", end)
    await eng.pipeline("one", "test/end")
    worker = await eng.node(roles="worker")
    run = await eng.node(roles="archive")
    await worker.stop()
    tx_id = await eng.start("one", 1)
    before = await kept(eng, tx_id)
    worker = await eng.node(roles="worker")
    first = await eng.final(tx_id)
    await archived(eng, [tx_id])
    await run.stop()
    await worker.stop()
    await forget(eng, tx_id)
    from datp.archive.restore import adopt

    await adopt(eng.store, [before])
    await eng.node(roles="worker")
    assert (await eng.final(tx_id)).status == "failed"
    await eng.node(roles="archive")

    async def settled() -> bool:
        return (await eng.transactions.reply(tx_id)).status == "success"

    await until(settled, "SQL's word counts")
    assert bytes((await eng.transactions.reply(tx_id)).transaction_output) == bytes(first.transaction_output)
    assert await backlog(eng) == 0


async def test_branches_and_their_parent_are_put_back_together(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("branch", "test/held")
    await eng.pipeline("quick", "util/echo")
    await eng.pipeline(
        "wide", {"parallel": {"branches": [{"pipeline": "branch"}, {"pipeline": "quick"}]}}, durability="snapshot"
    )
    await eng.node(roles="worker,archive")
    tx_id = await eng.start("wide", 1)
    await held.began()

    async def all_there() -> bool:
        rows = await sql(eng).live_versions("", 10)
        found = await sql(eng).read_states([row[0] for row in rows])
        return tx_id in found and found[tx_id].phase == "joining" and not await backlog(eng)

    await until(all_there, "SQL has the parent, and its branches")
    shown = await eng.transactions.show(tx_id)
    await forget(eng, tx_id, *shown.branches)
    assert await reconcile(eng.store, sql(eng), 10) >= 2
    await held.began(2)
    held.let_go("done")
    reply = await eng.final(tx_id)
    assert reply.status == "success", reply
    await archived(eng, [tx_id, *map(TransactionId, shown.branches)])


# ── an empty store, and the rebuild ──────────────────────────────────────────────────────────────────────────────


async def test_an_empty_store_is_rebuilt_and_every_accepted_transaction_ends_once(eng: Engine) -> None:
    runs: list[str] = []

    async def count(context: Context) -> None:
        runs.append(context.idempotency_key)

    eng.step("test/count", count)
    await eng.pipeline(
        "order",
        "util/echo",
        {"step": "util/wait", "with": {"switch": "go", "timeout": "7d"}},
        "test/count",
        durability="journal",
    )
    node = await eng.node(roles="worker,wakeup,archive")
    ended = await eng.start_many("order", range(5))
    for tx_id in ended:
        await eng.transactions.set_switch(tx_id, "go", True)
    for tx_id in ended:
        assert (await eng.final(tx_id)).status == "success"
    waiting = await eng.start_many("order", range(5))
    for tx_id in waiting:
        await eng.phase(tx_id, "waiting")
    await node.stop()
    queued = await eng.start_many("order", range(5))
    named = await eng.start("order", 1, external_id="e1")

    async with Redis.from_url(eng.store.url) as redis:
        await redis.flushall()
    with pytest.raises(StoreLost):
        await eng.start("order")
    old_identity = eng.store.identity

    fresh = Store(eng.store.url, eng.settings)
    database = Database(eng.settings.database_url, eng.settings)
    rebuilt = await rebuild(fresh, database)
    assert (rebuilt.live, rebuilt.epoch) == (11, 2)
    in_use = Store(eng.store.url, eng.settings)
    with pytest.raises(StoreLost, match="in use"):
        await rebuild(in_use, database)
    await database.close()
    await in_use.close()
    await fresh.close()

    with pytest.raises(DatabaseRefused, match="replaced"):
        await sql(eng).write_states([])
        await sql(eng).raise_version(waiting[0], 1, 2)
    await eng.store.open()
    assert eng.store.identity != old_identity
    await eng.archive.open()  # type: ignore[union-attr]
    await eng.definitions.reload()
    assert await eng.start("order", 1, external_id="e1") == named, "its externalId is still taken"
    await eng.node(roles="worker,wakeup,archive")
    for tx_id in [*waiting, *queued, named]:
        await eng.phase(tx_id, "waiting")
        await eng.transactions.set_switch(tx_id, "go", True)
    for tx_id in [*ended, *waiting, *queued, named]:
        assert (await eng.final(tx_id)).status == "success"
    assert len(runs) == len(set(runs)) == 16, "none ran twice"


async def test_a_rebuild_that_was_broken_off_is_begun_again(eng: Engine) -> None:
    await eng.pipeline("order", {"step": "util/wait", "with": {"switch": "go"}}, durability="journal")
    ids = await eng.start_many("order", range(4))
    async with Redis.from_url(eng.store.url) as redis:
        await redis.flushall()

    async def breaks(*_: Any) -> list[ArchivedState]:
        raise DatabaseUnreachable("on purpose")

    first, second = Store(eng.store.url, eng.settings), Store(eng.store.url, eng.settings)
    database = Database(eng.settings.database_url, eng.settings)
    live_states, database.live_states = database.live_states, breaks  # type: ignore[method-assign]
    with pytest.raises(DatabaseUnreachable):
        await rebuild(first, database)
    database.live_states = live_states  # type: ignore[method-assign]
    with pytest.raises(StoreLost, match="is being rebuilt"):
        await eng.store.open()
    rebuilt = await rebuild(second, database)
    for opened in (first, second, database):
        await opened.close()
    assert (rebuilt.live, rebuilt.epoch) == (len(ids), 3)
    await eng.store.open()


async def _is(claim: bool) -> bool:
    return claim
