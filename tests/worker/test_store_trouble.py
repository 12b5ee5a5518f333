"""Whatever happens to the store's server, every loop of a node goes on when it is back, and nothing is lost."""

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from servers import Cluster, Server, valkey
from worker.support import Engine, Refused, engine, lost_replies, soon, until

from datp.errors import StoreLost, StoreUnreachable
from datp.hotstore.connection import Connection, RawCall
from datp.hotstore.store import Store
from datp.model.ids import partition_of
from datp.settings import Settings
from datp.steps import Context
from datp.worker.node import Node

Trouble = Callable[[Engine, Server], Awaitable[None]]

COUNT = 100


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server of the test's own, which it may kill; what was answered is on its disk."""
    server = valkey(fsync="always")
    yield server
    server.stop()


@pytest.fixture
async def own(own_server: Server, quick: Settings) -> AsyncIterator[Engine]:
    settings = replace(quick, store_timeout_ms=600, lease_ms=1_000)
    async with engine(own_server.url, settings, "main", "other") as opened:
        yield opened


# ── the troubles ─────────────────────────────────────────────────────────────────────────────────────────────────


async def killed(eng: Engine, server: Server) -> None:
    server.kill()
    await everybody_has_noticed()
    server.restart()


async def restarted(eng: Engine, server: Server) -> None:
    server.restart()


async def frozen(eng: Engine, server: Server) -> None:
    """It takes calls, and answers them when nobody waits for the answer any more."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    await asyncio.sleep(1.2 * eng.settings.store_timeout_ms / 1000)
    os.kill(server.pid, signal.SIGCONT)


async def cut_off(eng: Engine, server: Server) -> None:
    """Every connection is closed, again and again, some of them while they are made."""
    for _ in range(20):
        server.client().client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(0.01)


async def without_scripts(eng: Engine, server: Server) -> None:
    for _ in range(20):
        server.client().script_flush()
        await asyncio.sleep(0.01)


async def without_replicas(eng: Engine, server: Server) -> None:
    """It refuses whatever writes, as it does too when its disk is full."""
    server.client().config_set("min-replicas-to-write", 1)
    await everybody_has_noticed()
    server.client().config_set("min-replicas-to-write", 0)


async def busy(eng: Engine, server: Server) -> None:
    """Somebody else's script holds it up: it answers BUSY until that is killed."""
    server.client().config_set("busy-reply-threshold", 1)
    endless = asyncio.create_task(asyncio.to_thread(other_client(server).eval, "while true do end", 0))
    await everybody_has_noticed()
    server.client().script_kill()
    with contextlib.suppress(RedisError):
        await endless


def other_client(server: Server) -> Redis:
    return Redis.from_url(server.url, retry=Retry(NoBackoff(), 0))


async def everybody_has_noticed() -> None:
    """Every loop has had its turn: there is no signal for what nobody can say."""
    await asyncio.sleep(0.5)


TROUBLES = [killed, restarted, frozen, cut_off, without_scripts, without_replicas, busy]


# ── what must go on ──────────────────────────────────────────────────────────────────────────────────────────────


async def lay_out(eng: Engine) -> Node:
    async def late(context: Context) -> None:
        await asyncio.sleep(0.002)

    eng.step("test/late", late)
    await eng.pipeline("child", "test/late", nodeGroup="other")
    sleep = {"step": "util/delay", "with": {"duration": "20ms"}}
    side_by_side = {"parallel": {"branches": [{"pipeline": "child"}] * 2}}
    await eng.pipeline("mixed", "test/late", sleep, {"pipeline": "child"}, side_by_side)
    await eng.pipeline("sleeping", sleep)
    await eng.pipeline("waiting", {"step": "util/wait", "with": {"switch": "go", "timeout": "10m"}})
    await eng.node(node_group="other", workers=20)
    return await eng.node(workers=20)


async def reached(eng: Engine) -> None:
    """The test itself has found the store again: its own connections were cut too."""

    async def is_reached() -> bool:
        with contextlib.suppress(StoreUnreachable):
            await eng.definitions.reload()
            return True
        return False

    await until(is_reached, "the store is reached again")


async def every_loop_goes_on(eng: Engine, node: Node) -> None:
    """Bell, waker, sweeper, registration, definitions, admin desk and renewal, each seen by what it does."""
    assert node.failure is None
    assert (await eng.run("sleeping")).status == "success", "sleepers are woken"
    overdue = await eng.start("waiting", deadline="100ms")
    assert (await eng.final(overdue)).status == "timeout", "deadlines are looked for"
    assert not isinstance(await eng.ask(node, "ping"), Refused), "admin events are answered"
    await eng.pipeline("new", "test/late")
    assert (await eng.run("new")).status == "success", "new definitions are heard of"

    async def is_listed() -> bool:
        async with eng.store.turn() as turn:
            reply = turn.list_nodes(eng.store.home(node.node_id))
        return node.node_id in [name for name, *_ in reply.value]

    await until(is_listed, "the node is listed")
    held = eng.held()
    await eng.pipeline("held", held.name)
    long_one = await eng.start("held")
    await held.began()
    await asyncio.sleep(1.2 * eng.settings.lease_ms / 1000)  # a lease is a span of time: there is no signal for it
    held.let_go()
    assert (await eng.final(long_one)).status == "success"
    assert len(held.runs) == 1, "leases are renewed"


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_every_loop_goes_on_after(trouble: Trouble, own: Engine, own_server: Server) -> None:
    node = await lay_out(own)
    assert (await own.run("mixed")).status == "success"
    await trouble(own, own_server)
    await reached(own)
    await every_loop_goes_on(own, node)


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_nothing_that_runs_is_lost_by(trouble: Trouble, own: Engine, own_server: Server) -> None:
    await lay_out(own)
    ids = await own.start_many("mixed", range(COUNT))
    await trouble(own, own_server)
    await reached(own)
    assert await own.finals(ids, 30) == ["success"] * COUNT


async def test_replies_that_are_lost_change_nothing(own: Engine) -> None:
    """Calls are executed, but nobody hears of it: they are sent again, and count once."""
    chance = random.Random(7)
    node = await lay_out(own)
    with lost_replies(node.store.connection, chance, 0.2), lost_replies(own.nodes[0].store.connection, chance, 0.2):
        ids = await own.start_many("mixed", range(COUNT))
        assert await own.finals(ids, 30) == ["success"] * COUNT
    assert await own.completed() == {"mixed": COUNT}, "each ended once"
    for tx_id in ids:
        flow = (await own.transactions.show(tx_id)).flow
        steps = [entry["stepId"] for entry in flow if entry["stepId"]]
        assert len(steps) == len(set(steps)), "each run went on from what was stored"


async def test_a_store_that_comes_back_empty_stops_its_nodes_with_a_sentence(
    valkey_server: Server, quick: Settings
) -> None:
    valkey_server.flush()
    async with engine(valkey_server.url, quick, "main", "other") as eng:
        node = await lay_out(eng)
        valkey_server.flush()
        await soon(node.ended.wait(), "the node has ended")
        assert isinstance(node.failure, StoreLost)
        assert "empty" in str(node.failure)
        await eng.store.open(create=True)  # so that the rest of the test can look at it


async def test_a_partition_that_is_away_costs_the_others_no_lease(own: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a server of a cluster is away: what the others hold is renewed, restored and told all the same."""
    held = own.held()
    await own.pipeline("held", held.name)
    await own.node()
    ids = await own.start_many("held", range(8))
    await held.began(8)
    execute = Connection.execute

    async def without_the_first(connection: Connection, calls: Sequence[RawCall]) -> None:
        await execute(connection, calls)
        for call in calls:
            if call.partition == 0 and call.script.contract.name in ("renew_leases", "reap"):
                call.reply = StoreUnreachable("its server is away, on purpose")

    monkeypatch.setattr(Connection, "execute", without_the_first)
    await asyncio.sleep(1.5 * own.settings.lease_ms / 1000)  # a lease is a span of time: there is no signal for it
    monkeypatch.undo()
    held.let_go()
    assert await own.finals(ids) == ["success"] * 8
    runs = Counter(context.tx_id for context in held.runs)
    assert {runs[tx_id] for tx_id in ids if partition_of(tx_id) == 1} == {1}


async def test_a_node_that_can_not_renew_its_leases_stops(own: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would take, and lose, one transaction after the other."""
    node = await own.node()
    monkeypatch.setattr(node.renewer, "_renew", _raise_a_defect)
    await soon(node.ended.wait(), "the node has ended")
    assert isinstance(node.failure, ZeroDivisionError)


async def _raise_a_defect(store: Store) -> None:
    raise ZeroDivisionError("on purpose")


@pytest.mark.redis7
async def test_a_restart_of_redis_7_is_survived(redis7_server: Server, quick: Settings) -> None:
    redis7_server.flush()
    async with engine(redis7_server.url, quick, "main", "other") as eng:
        node = await lay_out(eng)
        ids = await eng.start_many("mixed", range(COUNT))
        await restarted(eng, redis7_server)
        await without_scripts(eng, redis7_server)
        await reached(eng)
        assert await eng.finals(ids, 30) == ["success"] * COUNT
        await every_loop_goes_on(eng, node)


@pytest.mark.cluster
async def test_the_death_of_a_server_of_a_cluster_is_survived(cluster_server: Cluster, quick: Settings) -> None:
    cluster_server.flush()
    async with engine(cluster_server.url, replace(quick, partitions=3), "main", "other") as eng:
        node = await lay_out(eng)
        ids = await eng.start_many("mixed", range(COUNT))
        cluster_server.nodes[1].kill()
        await everybody_has_noticed()
        cluster_server.nodes[1].restart()
        cluster_server.wait_until_ok()
        for server in cluster_server.nodes:
            await without_scripts(eng, server)
        await reached(eng)
        assert await eng.finals(ids, 30) == ["success"] * COUNT
        await every_loop_goes_on(eng, node)
