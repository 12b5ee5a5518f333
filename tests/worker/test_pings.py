"""Pings through one, two and four pipelines and node groups: each once, and in order where there is one slot."""

import asyncio
import time
from collections import Counter
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from servers import Server
from worker.support import Engine, engine

from datp.settings import Settings
from datp.steps import Context

GROUPS = ("main", "other", "third", "fourth")


class Pings:
    """A chain of pipelines, each on a group of its own and with one step, and what ran."""

    def __init__(self, eng: Engine) -> None:
        self.eng = eng
        self.order: list[int] = []
        self.keys: Counter[str] = Counter()

    async def prepare(self, levels: int) -> None:
        async def ping(context: Context, input: Any) -> None:
            self.keys[context.idempotency_key] += 1
            self.order.append(input)

        self.eng.step("test/ping", ping)
        for level in range(levels, 0, -1):
            child = [{"pipeline": f"ping{level + 1}"}] if level < levels else []
            await self.eng.pipeline(f"ping{level}", "test/ping", *child, nodeGroup=GROUPS[level - 1])


async def ping_many(eng: Engine, levels: int, count: int, within_s: float) -> None:
    pings = Pings(eng)
    await pings.prepare(levels)
    for group in GROUPS[:levels]:
        await eng.node(node_group=group)
    ids = await eng.start_many("ping1", range(count))
    statuses = await eng.finals(ids, within_s)
    assert statuses == ["success"] * count
    assert len(pings.keys) == count * levels, "a ping at every level of every transaction"
    assert set(pings.keys.values()) == {1}, "each of them once"
    assert await eng.completed() == {"ping1": count}, "each completed exactly once"


@pytest.mark.parametrize("levels", [1, 2, 4])
async def test_pings_complete_exactly_once(eng: Engine, levels: int) -> None:
    await ping_many(eng, levels, 500, 20)


@pytest.mark.long
@pytest.mark.parametrize("levels", [1, 2, 4])
async def test_ten_thousand_pings_complete_exactly_once(valkey_server: Server, levels: int) -> None:
    valkey_server.flush()
    async with engine(valkey_server.url, Settings(partitions=4), *GROUPS) as eng:
        await ping_many(eng, levels, 10_000, 120)


class Completions:
    """The ids in the order in which they were completed, as the store told whoever listens."""

    def __init__(self, server: Server, tag: str) -> None:
        self._listener = server.client().pubsub()
        self._listener.ssubscribe(f"datp-notify:{tag}")
        self._listener.get_sharded_message(timeout=5)

    def heard(self) -> list[str]:
        ids = []
        while message := self._listener.get_sharded_message(timeout=0.2):
            if message["type"] == "smessage":
                changes = [line.split() for line in message["data"].split("\n")]
                ids += [tx_id for tx_id, status, _ in changes if status == "success"]
        return ids

    def close(self) -> None:
        self._listener.close()


async def in_order(server: Server, settings: Settings, count: int, within_s: float) -> None:
    server.flush()
    async with engine(server.url, settings) as eng:
        pings = Pings(eng)
        await pings.prepare(1)
        ids = await eng.start_many("ping1", range(count))
        completions = Completions(server, eng.store.tags[0])
        await eng.node(workers=1)
        await eng.finals(ids, within_s)
        assert pings.order == list(range(count)), "taken in order"
        assert completions.heard() == ids, "completed in order, each once"
        completions.close()


async def test_one_slot_takes_and_completes_in_order(valkey_server: Server) -> None:
    await in_order(valkey_server, Settings(partitions=1), 500, 20)


@pytest.mark.long
async def test_one_slot_takes_and_completes_ten_thousand_in_order(valkey_server: Server) -> None:
    await in_order(valkey_server, Settings(partitions=1), 10_000, 120)


@pytest.mark.parametrize("slots", [1, 4])
async def test_after_a_lease_loss_the_order_is_kept(valkey_server: Server, quick: Settings, slots: int) -> None:
    """What a node held when it died goes back to the head of the queue, before all that it had not taken."""
    valkey_server.flush()
    async with engine(valkey_server.url, replace(quick, partitions=1)) as eng:
        order: list[int] = []
        is_dead = asyncio.Event()
        held: set[int] = set()

        async def ping(input: Any) -> None:
            if not is_dead.is_set():
                held.add(input)
                await asyncio.Event().wait()
            order.append(input)

        eng.step("test/ping", ping)
        await eng.pipeline("ping1", "test/ping")
        ids = await eng.start_many("ping1", range(12))
        dying = await eng.node(workers=slots)
        async with asyncio.timeout(5):
            while len(held) < slots:
                await asyncio.sleep(0)
        await eng.node(roles="wakeup")
        await eng.crash(dying)
        is_dead.set()
        for tx_id in ids[:slots]:
            await eng.phase(tx_id, "queued")
        await eng.node(workers=1)
        assert await eng.finals(ids) == ["success"] * 12
        # Those of one batch have one lease's end, and no order among themselves that the store would know of.
        assert sorted(order[:slots]) == list(range(slots)), "they stand at the head"
        assert order[slots:] == list(range(slots, 12)), "the others stand as they stood"


async def test_a_start_is_complete_within_milliseconds(valkey_server: Server) -> None:
    valkey_server.flush()
    async with engine(valkey_server.url, Settings(partitions=2)) as eng:
        ended = asyncio.Event()

        async def ping() -> None:
            ended.set()

        eng.step("test/ping", ping)
        await eng.pipeline("ping1", "test/ping")
        await eng.node()
        await eng.run("ping1")
        took_ms = []
        for _ in range(50):
            ended.clear()
            began = time.perf_counter()
            tx_id = await eng.start("ping1")
            await ended.wait()
            while not all(await eng.statuses([tx_id])):
                pass
            took_ms.append((time.perf_counter() - began) * 1000)
        assert median(took_ms) < 20
