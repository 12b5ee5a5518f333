"""Nodes are killed (-9) at random while they run; every transaction ends, and each effect is had once."""

import asyncio
import contextlib
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from servers import Server
from worker.support import Engine, engine, until

from datp.api.transactions import StartRequest
from datp.model.ids import TransactionId
from datp.settings import Settings

HERE = Path(__file__).parent
STEPS = 4


class NodeProcess:
    """A node in a process of its own, which may be killed and started again."""

    def __init__(self, url: str, settings: dict[str, int], pace_s: float) -> None:
        self.url = url
        self.settings = settings
        self.pace_s = pace_s
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(HERE / "ledger.py"),
            *(f"{name}={value}" for name, value in self.settings.items()),
            env={**os.environ, "LEDGER_URL": self.url, "LEDGER_PACE_S": str(self.pace_s)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        assert await asyncio.wait_for(self.process.stdout.readline(), 20) == b"ready\n"

    async def kill(self) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@contextlib.asynccontextmanager
async def node_processes(
    url: str, count: int, settings: dict[str, int], pace_s: float
) -> AsyncIterator[list[NodeProcess]]:
    nodes = [NodeProcess(url, settings, pace_s) for _ in range(count)]
    try:
        await asyncio.gather(*(node.start() for node in nodes))
        yield nodes
    finally:
        await asyncio.gather(*(node.kill() for node in nodes if node.process))


async def start_many(eng: Engine, name: str, total: int) -> list[TransactionId]:
    ids: list[TransactionId] = []
    for first in range(0, total, 500):
        requests = [StartRequest(name, input={"n": n}) for n in range(first, min(first + 500, total))]
        started = await eng.transactions.start_batch("acme", requests)
        ids += [one.tx_id for one in started if not isinstance(one, Exception)]
    assert len(ids) == total
    return ids


async def completed(eng: Engine) -> int:
    """How many have ended: they wait to be archived."""
    async with eng.store.turn() as turn:
        stats = [turn.queue_stats(partition) for partition in range(eng.store.partitions)]
    sizes = [dict(zip(reply.value[2][0::2], reply.value[2][1::2], strict=True)) for reply in stats]
    return sum(size[b"to_archive"] for size in sizes)


async def kill_at_random(
    eng: Engine, redis: Redis, nodes: list[NodeProcess], total: int, every_s: float, chance: random.Random
) -> tuple[int, int]:
    """Kills and restarts nodes until everything has ended; how many kills, and how many with a step running."""
    kills = with_step = 0
    while await completed(eng) < total:
        await asyncio.sleep(every_s * (0.5 + chance.random()))
        node = chance.choice(nodes)
        assert node.process is not None
        pid = node.process.pid
        await node.kill()
        kills += 1
        with_step += bool(await redis.hlen(f"ledger:running:{pid}"))
        await node.start()
    return kills, with_step


async def run_under_kills(url: str, settings: Settings, total: int, every_s: float, pace_s: float, workers: int) -> str:
    seed = int(os.environ.get("DATP_TEST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with engine(url, settings) as eng, Redis.from_url(url) as redis:
        await eng.pipeline("four", *["test/effect"] * STEPS)
        ids = await start_many(eng, "four", total)
        shared = {
            "lease_ms": settings.lease_ms,
            "lease_margin_ms": settings.lease_margin_ms,
            "attempts_max": 50,
            "workers": workers,
            "suspect_solitude_ms": 50,
        }
        began = time.monotonic()
        async with node_processes(url, 3, shared, pace_s) as nodes:
            kills, with_step = await kill_at_random(eng, redis, nodes, total, every_s, chance)
        took = time.monotonic() - began
        replies = [await eng.transactions.reply(tx_id) for tx_id in ids]
        assert {reply.status for reply in replies} == {"success"}
        seen: dict[bytes, bytes] = await redis.hgetall("ledger:seen")
        effects: dict[bytes, bytes] = await redis.hgetall("ledger:effects")
        assert len(effects) == len(seen) == total * STEPS, "each step's effect, once by its key"
        longest = await longest_wait_s(redis, ids)
        bound = (settings.lease_ms + settings.sweep_interval_ms + 1_000) / 1_000 + 1.5 * pace_s
        again = sum(int(times) for times in seen.values()) - len(seen)
        said = (
            f"{total} transactions in {took:.1f} s, {kills} kills, {with_step} with a step running,"
            f" {again} steps seen again, longest wait {longest:.1f} s of {bound:.1f} s"
        )
        print(said)
        assert longest <= bound, said
    return said


async def longest_wait_s(redis: Redis, ids: list[TransactionId]) -> float:
    """The longest time between two beginnings of steps of one transaction, for each crash that it met in between.

    A run that is killed before its step wrote down that it began shows in the next one's attempt.
    """
    longest = 0.0
    for tx_id in ids:
        began = [line.split() for line in await redis.lrange(f"ledger:began:{tx_id}", 0, -1)]
        for (earlier, _, attempt, _), (later, _, next_attempt, _) in itertools.pairwise(began):
            crashes = max(1, int(next_attempt) - int(attempt))
            longest = max(longest, (float(later) - float(earlier)) / crashes)
    return longest


async def test_kills_lose_nothing(valkey_server: Server) -> None:
    valkey_server.flush()
    settings = Settings(partitions=2, lease_ms=2_000, lease_margin_ms=400)
    await run_under_kills(valkey_server.url, settings, total=600, every_s=0.6, pace_s=0.03, workers=10)


@pytest.mark.long
async def test_ten_thousand_transactions_survive_thirty_kills(valkey_server: Server) -> None:
    valkey_server.flush()
    said = await run_under_kills(
        valkey_server.url, Settings(partitions=4), total=10_000, every_s=2.0, pace_s=0.1, workers=20
    )
    kills, with_step = int(said.split(", ")[1].split()[0]), int(said.split(", ")[2].split()[0])
    assert kills >= 30
    assert with_step >= 20


async def test_a_transaction_that_kills_its_node_ends_on_the_exception_list(valkey_server: Server) -> None:
    valkey_server.flush()
    settings = Settings(partitions=1, lease_ms=600, lease_margin_ms=100, sweep_interval_ms=50)
    async with engine(valkey_server.url, settings) as eng, Redis.from_url(valkey_server.url) as redis:
        await eng.pipeline("poison", "test/killer")
        poison = await eng.start("poison")
        shared = {"lease_ms": 600, "lease_margin_ms": 100, "attempts_max": 2, "workers": 5, "sweep_interval_ms": 50}
        async with node_processes(valkey_server.url, 1, shared, 0.01) as [node]:

            async def parked() -> bool:
                assert node.process is not None
                if node.process.returncode is not None:
                    await node.start()
                return (await eng.transactions.show(poison)).phase == "exception"

            await until(parked, "the poison is parked", 30)
        # The first loss may have been a neighbour's fault; attempts_max more were its own.
        assert int(await redis.get("ledger:killed")) == 3
        shown = await eng.transactions.show(poison)
        assert "lost its lease 3 times" in shown.parked["reason"]
        assert shown.reply.note == f"parked: {shown.parked['reason']}"
