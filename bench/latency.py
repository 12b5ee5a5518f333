"""One at a time: from the call that starts a transaction to the notification that it is complete."""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import uvloop
from redis.asyncio import Redis

from bench.cores import apart
from bench.drain import INPUT, prepare
from bench.drain import echo as echo_step
from bench.drain import noop as noop_step
from datp.api.transactions import StartRequest
from datp.embedded import EmbeddedServer
from datp.settings import Settings
from datp.steps.contract import MARK
from datp.steps.registry import Registry
from datp.worker.node import Node


async def measure(total: int, partitions: int) -> list[float]:
    """Milliseconds of each; the node and the client share one process, as in `datp dev`."""
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(Path(folder) / "engine")
        server.start()
        apart(server.pid)
        settings = Settings(store_url=server.url, partitions=partitions)
        store, transactions = await prepare(server.url, settings)
        registry = Registry([getattr(noop_step, MARK), getattr(echo_step, MARK)])
        node = Node(settings, registry, url=server.url)
        await node.start()
        client = Redis.from_url(server.url)
        listener = client.pubsub()
        await listener.ssubscribe(*(f"datp-notify:{tag}" for tag in store.tags))
        took = []
        for _ in range(total):
            began = time.perf_counter()
            started = await transactions.start("bench", StartRequest("echo", input=INPUT))
            await told(listener, f"{started.tx_id} success")
            took.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.005)  # the node is idle again, and listens for the bell
        await listener.aclose()
        await client.aclose()
        await node.stop()
        await store.close()
        server.stop()
    return took


async def told(listener: object, wanted: str) -> None:
    """Returns when the notification has come."""
    while True:
        message = await listener.get_message(timeout=5.0)  # type: ignore[attr-defined]
        assert message is not None, f"nobody was told: {wanted}"
        if message["type"] == "smessage" and any(
            line.startswith(wanted) for line in message["data"].decode().split("\n")
        ):
            return


def main(total: int = 300) -> dict[str, float]:
    took = sorted(uvloop.run(measure(total, partitions=1))[20:])
    figures = {"p50 ms": statistics.median(took), "p99 ms": took[int(len(took) * 0.99)]}
    for name, value in figures.items():
        print(f"start → completion {name:8} {value:6.2f}")
    return figures


if __name__ == "__main__":
    main()
