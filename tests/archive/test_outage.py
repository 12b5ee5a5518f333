"""The database is away for a while, under load: what runs goes on, nothing is lost, and the backlog drains."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from archived import QUICK
from databases import DatabaseServer
from node_processes import Processes
from servers import Server
from worker.support import Engine, engine, until

from datp.api.transactions import StartRequest
from datp.archive.database import Database
from datp.errors import DatabaseUnreachable
from datp.hotstore.store import Archivable
from datp.model.ids import TransactionId
from datp.model.status import FINAL

SLEEP = {"step": "util/delay", "with": {"duration": "200ms"}}


@contextmanager
def killed(server: DatabaseServer) -> Any:
    server.kill()
    try:
        yield
    finally:
        server.start()


@contextmanager
def frozen(server: DatabaseServer) -> Any:
    """It neither answers nor refuses."""
    process = server._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


class Load:
    """Clients that start transactions of both kinds all the while."""

    def __init__(self, eng: Engine) -> None:
        self.ids: list[TransactionId] = []
        self._eng = eng
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            requests = [StartRequest(name) for name in ("quick", "sleeps") * 5]
            for started in await self._eng.transactions.start_batch("acme", requests):
                assert not isinstance(started, Exception), started
                self.ids.append(started.tx_id)
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def those_started_now_end(self) -> None:
        """Those that are started from now on end, in memory, though SQL is away."""
        first = len(self.ids)
        await until(lambda: _is(len(self.ids) >= first + 30), "there are some more")

        async def ended() -> bool:
            statuses = await self._eng.statuses(self.ids[first : first + 30])
            return all(statuses)

        await until(ended, "they end while SQL is away", 5)


async def _is(claim: bool) -> bool:
    return claim


async def backlog(eng: Engine) -> int:
    async with eng.store.turn() as turn:
        stats = [turn.queue_stats(partition) for partition in range(eng.store.partitions)]
    sizes = [dict(zip(reply.value[2][0::2], reply.value[2][1::2], strict=True)) for reply in stats]
    return sum(size[b"to_archive"] + size[b"evicted"] for size in sizes)


@pytest.mark.parametrize(("kind", "away"), [("postgresql", killed), ("mariadb", killed), ("mariadb", frozen)])
async def test_what_runs_goes_on_while_the_database_is_away(
    away: Callable[[DatabaseServer], Any],
    kind: str,
    servers: Callable[[str], DatabaseServer],
    emptied_url: str,
    valkey_server: Server,
) -> None:
    valkey_server.flush()
    settings = replace(QUICK, database_url=emptied_url)
    async with engine(valkey_server.url, settings) as eng:
        assert eng.archive is not None
        await eng.pipeline("quick", "util/echo", "util/echo")
        await eng.pipeline("sleeps", "util/echo", SLEEP)
        for _ in range(2):
            await eng.node(roles="worker,wakeup,archive")
        load = Load(eng)
        await until(lambda: _is(len(load.ids) > 50), "there is load")
        with away(servers(kind)):
            await load.those_started_now_end()
            if away is killed:
                await eng.node(roles="worker,wakeup,archive")
            await load.those_started_now_end()
            assert await backlog(eng) > 60, "nothing is acknowledged"
        await load.stop()
        await everything_is_in_sql(eng, load.ids)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_a_minute_without_the_database(
    kind: str, servers: Callable[[str], DatabaseServer], eng: Engine, processes: Processes
) -> None:
    """The same with nodes that are processes, one of them started meanwhile."""
    await eng.pipeline("quick", "util/echo", "util/echo")
    await eng.pipeline("sleeps", "util/echo", SLEEP)
    await processes.nodes(2)
    load = Load(eng)
    await until(lambda: _is(len(load.ids) > 50), "there is load")
    with killed(servers(kind)):
        ends_at = time.monotonic() + 60
        while time.monotonic() < ends_at:
            await load.those_started_now_end()
        await processes.nodes(1)
        await load.those_started_now_end()
        waiting = await backlog(eng)
    began = time.monotonic()
    await load.stop()
    await everything_is_in_sql(eng, load.ids)
    print(
        f"{len(load.ids)} transactions, {waiting} waited for SQL, which had them {time.monotonic() - began:.1f} s later"
    )


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
async def test_archivers_that_are_killed_at_random(eng: Engine, processes: Processes, kind: str) -> None:
    """Wherever it hits them: SQL has every end, in the very version that the store has."""
    seed = int(os.environ.get("DATP_TEST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}")
    chance = random.Random(seed)
    await eng.pipeline("quick", "util/echo", "util/echo")
    await eng.pipeline("sleeps", "util/echo", SLEEP)
    await eng.node(roles="worker,wakeup")
    archivers = await processes.nodes(2, roles="archive")
    load = Load(eng)
    for _ in range(4):
        await asyncio.sleep(chance.random() / 2)  # the moment is what is random here
        victim = archivers.pop(0)
        await asyncio.to_thread(victim.kill)
        archivers += await processes.nodes(1, roles="archive")
    await load.stop()
    await everything_is_in_sql(eng, load.ids)
    async with eng.store.turn() as turn:
        reply = turn.read_states(load.ids)
    held = await eng.archive.database.read_states(load.ids)  # type: ignore[union-attr]
    compared = 0
    for tx_id, known in zip(load.ids, reply.value, strict=True):
        if isinstance(known, Archivable):
            compared += 1
            assert (held[tx_id].version, held[tx_id].fields["state"]) == (known.version, known.fields["state"])
    assert compared > 100


async def everything_is_in_sql(eng: Engine, ids: list[TransactionId], within_s: float = 30) -> None:
    """Every one has ended, SQL has its end, and nothing is left to do."""
    database: Database = eng.archive.database  # type: ignore[union-attr]
    missing = set(ids)

    async def all_there() -> bool:
        try:
            found = await database.read_states(sorted(missing)[:500])
        except DatabaseUnreachable:
            return False
        missing.difference_update(tx_id for tx_id, state in found.items() if state.status in FINAL)
        return not missing and not await backlog(eng)

    await until(all_there, "SQL has every end", within_s)
    for first in range(0, len(ids), 500):
        found = await database.read_states(ids[first : first + 500])
        assert {state.status for state in found.values()} == {"success"}
