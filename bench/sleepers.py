"""Sleepers that have left memory: what each still costs in Valkey, and how long it takes when all are due at once."""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from redis.asyncio import Redis

from bench.drain import INPUT
from datp.api.transactions import StartRequest, Transactions
from datp.archive import migrate
from datp.archive.database import Database
from datp.definitions import Definitions
from datp.embedded import EmbeddedServer
from datp.hotstore.store import Store
from datp.model.pipeline import parse_pipeline
from datp.settings import Settings
from datp.steps.registry import load_registry
from datp.worker.node import Node


async def sizes(store: Store) -> dict[str, int]:
    """How many are in each place, over all partitions."""
    async with store.turn() as turn:
        stats = [turn.queue_stats(partition) for partition in range(store.partitions)]
    found: dict[str, int] = {}
    for reply in stats:
        places: list[Any] = reply.value[2]
        for place, size in zip(places[0::2], places[1::2], strict=True):
            found[place.decode()] = found.get(place.decode(), 0) + size
    return found


async def until(store: Store, place: str, wanted: int) -> float:
    """Seconds until so many are in this place."""
    began = time.perf_counter()
    while (await sizes(store)).get(place, 0) != wanted:  # noqa: ASYNC110  # another process's work, which tells nobody
        await asyncio.sleep(0.05)
    return time.perf_counter() - began


async def measure(total: int, database_url: str, *, external_ids: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(Path(folder) / "engine", options={"auto-aof-rewrite-percentage": "0"})
        server.start()
        settings = Settings(
            store_url=server.url,
            partitions=1,
            workers=200,
            database_url=database_url or f"sqlite:///{folder}/archive.sqlite",
            evict_after_ms=1,
            archive_delay_ms=1,
            state_ttl_ms=1,
            wake_interval_ms=200,
        )
        database = Database(settings.database_url, settings)
        await migrate.up(database.driver)
        await database.close()
        store = Store(server.url, settings)
        await store.open(create=True)
        definitions = Definitions(store)
        await definitions.save_group("main", {})
        wait = {"step": "util/wait", "with": {"switch": "go", "timeout": "7d"}}
        await definitions.save(
            parse_pipeline({"name": "sleeps", "steps": [{"id": "s1", **wait}]}, settings), activate=True
        )
        await definitions.reload()
        transactions = Transactions(store, definitions)
        async with Redis.from_url(server.url) as redis:
            node = Node(settings_with(settings, roles="worker,archive"), load_registry(""), url=server.url)
            await node.start()
            warm_up = [StartRequest("sleeps", input=INPUT)] * 100
            await transactions.start_batch("bench", warm_up)
            await until(store, "evicted", 100)
            before = int((await redis.info("memory"))["used_memory"])
            began = time.perf_counter()
            for first in range(0, total, 500):
                await transactions.start_batch(
                    "bench",
                    [
                        StartRequest("sleeps", input=INPUT, external_id=f"order-{n:010d}" if external_ids else None)
                        for n in range(first, min(first + 500, total))
                    ],
                )
            await until(store, "evicted", total + 100)
            evicted_s = time.perf_counter() - began
            await asyncio.sleep(1)
            per_sleeper = (int((await redis.info("memory"))["used_memory"]) - before) / total
            # Their time has come, all at once.
            tag = store.tags[0]
            ids = await redis.zrange(f"sleepingZ:{tag}", 0, -1)
            for first in range(0, len(ids), 1000):
                await redis.zadd(f"sleepingZ:{tag}", dict.fromkeys(ids[first : first + 1000], 1))
            await node.stop()
            node = Node(settings_with(settings, roles="worker,wakeup"), load_registry(""), url=server.url)
            began = time.perf_counter()
            await node.start()
            await until(store, "sleeping", 0)
            woken_s = time.perf_counter() - began
            await until(store, "to_archive", total + 100)
            completed_s = time.perf_counter() - began
            await node.stop()
        await store.close()
        server.stop()
    return {
        "bytes per sleeper": per_sleeper,
        "started and evicted, s": evicted_s,
        "all woken, s": woken_s,
        "all complete, s": completed_s,
    }


def settings_with(settings: Settings, **more: Any) -> Settings:
    from dataclasses import replace

    return replace(settings, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, default=100_000)
    parser.add_argument("--database-url", default="", help="an empty database; default: SQLite in a temporary folder")
    wanted = parser.parse_args()
    for external_ids in (False, True):
        print(f"{wanted.total} sleepers {'with' if external_ids else 'without'} externalId")
        for name, value in uvloop.run(measure(wanted.total, wanted.database_url, external_ids=external_ids)).items():
            print(f"  {name:24} {value:10,.1f}")


if __name__ == "__main__":
    main()
