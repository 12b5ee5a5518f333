"""How fast one worker process drains a full queue, and what share of the raw limit that is, in the same run."""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from bench.cores import apart
from bench.raw import measure_drain, measure_enqueue
from datp.api.transactions import StartRequest, Transactions
from datp.definitions import Definitions
from datp.embedded import EmbeddedServer
from datp.hotstore.store import Store
from datp.model.pipeline import parse_pipeline
from datp.settings import Settings
from datp.steps import Context, step
from datp.steps.contract import MARK
from datp.steps.registry import Registry
from datp.worker.node import Node

INPUT = {"account": "DE89370400440532013000", "lines": [{"n": n, "text": "x" * 70} for n in range(10)], "ok": True}
"""About 1 KiB as JSON."""


@step("bench/noop")
async def noop(context: Context) -> None:
    """Nothing; the input is passed on."""


@step("bench/echo")
async def echo(input: Any) -> Any:
    """Reads its input, and returns it: decoded and encoded once."""
    return input


def pipeline(name: str, step_type: str, steps: int) -> dict[str, Any]:
    return {"name": name, "steps": [{"id": f"s{n}", "step": step_type} for n in range(steps)]}


async def prepare(url: str, settings: Settings) -> tuple[Store, Transactions]:
    store = Store(url, settings)
    await store.open(create=True)
    definitions = Definitions(store)
    await definitions.save_group("main", {})
    for name, step_type in (("noop", "bench/noop"), ("echo", "bench/echo")):
        await definitions.save(parse_pipeline(pipeline(name, step_type, 3), settings), activate=True)
    await definitions.reload()
    return store, Transactions(store, definitions)


async def fill(transactions: Transactions, name: str, total: int) -> float:
    """Starts so many, 500 at a time, with two calls under way; per second."""
    request = StartRequest(name, input=INPUT)

    async def half() -> None:
        for _ in range(total // 1000):
            await transactions.start_batch("bench", [request] * 500)

    began = time.perf_counter()
    await asyncio.gather(half(), half())
    return total / (time.perf_counter() - began)


async def drain(url: str, settings: Settings, store: Store, total: int) -> float:
    """One node in this process takes everything that is queued; per second."""
    registry = Registry([getattr(noop, MARK), getattr(echo, MARK)])
    node = Node(settings, registry, url=url)
    began = time.perf_counter()
    await node.start()
    left = total
    while left:
        await asyncio.sleep(0.02)
        async with store.turn() as turn:
            stats = [turn.queue_stats(partition) for partition in range(store.partitions)]
        sizes = [dict(zip(reply.value[2][0::2], reply.value[2][1::2], strict=True)) for reply in stats]
        left = total - sum(size[b"to_archive"] for size in sizes)
    seconds = time.perf_counter() - began
    await node.stop()
    return total / seconds


async def measure(total: int, name: str, workers: int, partitions: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(Path(folder) / "raw", options={"auto-aof-rewrite-percentage": "0"})
        server.start()
        apart(server.pid)
        raw_enqueue = (await measure_enqueue(server.url, total)).items_per_s
        raw = (await measure_drain(server.url, total)).items_per_s
        raw_overlapped = (await measure_drain(server.url, total, overlapped=True)).items_per_s
        server.stop()
        server = EmbeddedServer(Path(folder) / "engine", options={"auto-aof-rewrite-percentage": "0"})
        server.start()
        apart(server.pid)
        settings = Settings(store_url=server.url, partitions=partitions, workers=workers)
        store, transactions = await prepare(server.url, settings)
        enqueue = await fill(transactions, name, total)
        node_s, server_s = time.process_time(), await server_cpu_s(store)
        drained = await drain(server.url, settings, store, total)
        node_s, server_s = time.process_time() - node_s, await server_cpu_s(store) - server_s
        await store.close()
        server.stop()
    return {
        "enqueue": enqueue,
        "raw enqueue": raw_enqueue,
        "drain": drained,
        "raw drain": raw,
        "raw overlapped": raw_overlapped,
        "node's core, µs": node_s / total * 1e6,
        "server's core, µs": server_s / total * 1e6,
    }


async def server_cpu_s(store: Store) -> float:
    info = await store.connection.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pipeline", default="noop", choices=["noop", "echo"])
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=1)
    wanted = parser.parse_args()
    rows = [
        uvloop.run(measure(wanted.total, wanted.pipeline, wanted.workers, wanted.partitions))
        for _ in range(wanted.repeats)
    ]
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    for name, value in medians.items():
        unit = "" if name.endswith("µs") else "/s"
        print(f"{name:18} {value:10,.0f}{unit}   {', '.join(f'{row[name]:,.0f}' for row in rows)}")
    print(f"drain is {medians['drain'] / medians['raw drain']:.0%} of its raw limit")
    print(f"enqueue is {medians['enqueue'] / medians['raw enqueue']:.0%} of its raw limit")


if __name__ == "__main__":
    main()
