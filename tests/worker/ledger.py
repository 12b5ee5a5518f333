"""Steps whose effects are written down outside the engine, and the process that runs them and may be killed."""

import asyncio
import os
import random
import sys
import time

import uvloop
from redis.asyncio import Redis

from datp.settings import Settings
from datp.steps import Context, step
from datp.steps.contract import MARK
from datp.steps.registry import Registry
from datp.worker.node import Node

URL = os.environ.get("LEDGER_URL", "")
PACE_S = float(os.environ.get("LEDGER_PACE_S", "0.02"))

_redis: list[Redis] = []


def ledger() -> Redis:
    if not _redis:
        _redis.append(Redis.from_url(URL))
    return _redis[0]


@step("test/effect")
async def effect(context: Context) -> None:
    """Writes down that it began, takes a while, has its effect once by its key, and writes down that it ended."""
    key = context.idempotency_key
    redis = ledger()
    await redis.rpush(f"ledger:began:{context.tx_id}", f"{time.time():.4f} {key} {context.attempt} {os.getpid()}")
    await redis.hset(f"ledger:running:{os.getpid()}", context.tx_id, key)
    await asyncio.sleep(PACE_S * (0.5 + random.random()))
    async with redis.pipeline(transaction=True) as pipe:
        pipe.hincrby("ledger:seen", key, 1)
        pipe.hsetnx("ledger:effects", key, context.tx_id)
        pipe.hdel(f"ledger:running:{os.getpid()}", context.tx_id)
        await pipe.execute()


@step("test/killer")
async def killer(context: Context) -> None:
    """Takes its process with it."""
    await ledger().incr("ledger:killed")
    os.kill(os.getpid(), 9)


async def main() -> None:
    registry = Registry([getattr(effect, MARK), getattr(killer, MARK)])
    settings = Settings(**{name: int(value) for name, value in (pair.split("=") for pair in sys.argv[1:])})
    node = Node(settings, registry, url=URL)
    await node.start()
    print("ready", flush=True)
    await node.ended.wait()
    if node.failure is not None:
        raise node.failure


if __name__ == "__main__":
    uvloop.run(main())
