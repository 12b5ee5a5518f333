"""How many deliveries a second one sender makes to fast receivers, and what two bad ones take from that.

500 good receivers, each an address of its own on loopback, answer at once; one answers after 15 s, one refuses
connections. Deliveries are signed, addresses are checked where they are connected to, what became of each is written
to SQL. The rate of the good ones with the two bad beside them is compared with the rate without, in interleaved rounds;
the raw figure is the same client posting the same bodies to the same receivers, with no store, signature or ledger.

    python -m bench.webhooks [--total 20000] [--rounds 3]
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import platform
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from importlib.metadata import version
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvloop

from datp.archive import migrate
from datp.archive.database import Database
from datp.archive.drivers import driver_for
from datp.definitions import Definitions
from datp.embedded import EmbeddedServer
from datp.hotstore.store import Completion, Start, Store
from datp.model.ids import Partition, new_transaction_id
from datp.settings import Settings
from datp.steps.registry import Registry
from datp.webhooks.role import webhook_services
from datp.worker.node import Node

GOOD: Final = 500
SLOW_S: Final = 15.0
BAD_SHARE: Final = 20
"""Times what a good receiver gets, for each of the two bad ones."""
OUTPUT: Final = json.dumps({"reference": "0123456789abcdef", "note": "n" * 400})
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


# ── receivers, in a process of their own ─────────────────────────────────────────────────────────────────────────


class Good(asyncio.Protocol):
    """Reads requests as simply as can be, counts them, and answers."""

    count: "Synchronized[int]"

    def __init__(self) -> None:
        self.buffer = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while True:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            at = head.lower().index(b"content-length: ") + 16
            length = int(head[at : at + 8].split(b"\r")[0])
            if len(rest) < length:
                return
            self.buffer = rest[length:]
            type(self).count.value += 1
            self.transport.write(ANSWER)


class Slow(asyncio.Protocol):
    """Answers after 15 s."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(SLOW_S, self.answer)

    def answer(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(ANSWER)


def receive(count: "Synchronized[int]", ports: Any) -> None:
    """The receivers, until this process is ended."""
    Good.count = count

    async def run() -> None:
        loop = asyncio.get_running_loop()
        first = await loop.create_server(Good, "127.1.0.1", 0)
        port = first.sockets[0].getsockname()[1]
        for number in range(1, GOOD):
            await loop.create_server(Good, f"127.1.{number // 250}.{number % 250 + 1}", port)
        slow = await loop.create_server(Slow, "127.2.0.1", 0)
        ports.put((port, slow.sockets[0].getsockname()[1]))
        await asyncio.Event().wait()

    uvloop.run(run())


# ── what is owed ─────────────────────────────────────────────────────────────────────────────────────────────────


async def owe(store: Store, urls: list[str], number: "itertools.count[int]") -> None:
    """A transaction for each of these URLs has ended, and its delivery is owed."""
    for first in range(0, len(urls), 500):
        here = urls[first : first + 500]
        ids = [new_transaction_id(Partition(0), int(time.time() * 1000), next(number)) for _ in here]
        starts = [
            Start(tx_id, "bench", "", "", "echo", "1", "main", 0, json.dumps({"url": url}), "hot")
            for tx_id, url in zip(ids, here, strict=True)
        ]
        async with store.turn() as turn:
            turn.enqueue(starts, [b'{"flow":[]}'] * len(ids))
            taken = turn.dequeue(0, group="main", node="b", lane="0", turn=next(number), want=500, alone=False)
        items = [Completion(one.tx_id, one.token, "success", "", OUTPUT, "") for one in taken.value.taken]
        async with store.turn() as turn:
            turn.complete(items, [b'{"flow":[1]}'] * len(items))


def settings_for(server: EmbeddedServer, folder: Path) -> Settings:
    return Settings(
        store_url=server.url,
        database_url=f"sqlite:///{folder}/archive.sqlite",
        partitions=1,
        roles="webhooks",
        outbound_networks="127.0.0.0/8",
        shutdown_grace_ms=100,
    )


@contextlib.asynccontextmanager
async def prepared(folder: Path) -> AsyncIterator[tuple[Settings, Store]]:
    server = EmbeddedServer(folder / "store")
    server.start()
    settings = settings_for(server, folder)
    driver = driver_for(settings.database_url, settings)
    await migrate.up(driver)
    await driver.close()
    store = Store(server.url, settings)
    await store.open(create=True)
    await Definitions(store).save_group("main", {})
    try:
        yield settings, store
    finally:
        await store.close()
        server.stop()


def stations(node: Node) -> Any:
    assert node.archive is not None
    return webhook_services(node.store, node.settings, node.events, node.archive.database)


async def reached(count: "Synchronized[int]", wanted: int) -> float:
    """When so many have arrived."""
    ends_at = time.monotonic() + 90
    while count.value < wanted:
        assert time.monotonic() < ends_at, f"only {count.value} of {wanted} arrived"
        await asyncio.sleep(0.002)
    return time.perf_counter()


async def measure(count: "Synchronized[int]", good: list[str], bad: list[str], total: int) -> float:
    """Good deliveries a second; the first and the last tenth are left out."""
    number = itertools.count(1)
    with tempfile.TemporaryDirectory() as name:
        async with prepared(Path(name)) as (settings, store):
            urls = [good[place % len(good)] for place in range(total)]
            each = BAD_SHARE * total // len(good)
            step = max(1, total // max(1, each))
            for place, url in itertools.product(range(each), bad):
                urls.insert(min(len(urls), place * (step + len(bad))), url)
            await owe(store, urls, number)
            count.value = 0
            node = Node(settings, Registry([]), url=settings.store_url, stations=stations)
            await node.start()
            began = await reached(count, total // 10)
            ended = await reached(count, total * 9 // 10)
            await reached(count, total)
            await node.stop()
            if not bad:
                database = Database(settings.database_url, settings)
                async with database.driver.reading() as connection:
                    rows = await connection.rows(_count_query(database))
                await database.close()
                assert rows[0][0] == total, f"SQL knows of {rows[0][0]} deliveries of {total}"
    return (total * 9 // 10 - total // 10) / (ended - began)


def _count_query(database: Database) -> Any:
    from dataclasses import replace

    return replace(
        database._queries["describe_server"],
        text="SELECT count(*) FROM datp_webhook_delivery",
        names=(),
        lists=frozenset(),
    )


async def raw(count: "Synchronized[int]", good: list[str], total: int) -> float:
    """The same client, the same bodies, and nothing else."""
    body = b'{"type":"transaction.completed","timestamp":"2026-11-18T10:00:00.000Z","data":%b}' % (b"x" * 800)
    count.value = 0
    left = iter(range(total))
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
    ) as session:

        async def worker() -> None:
            for place in left:
                async with session.post(good[place % len(good)], data=body) as response:
                    await response.read()

        workers = [asyncio.create_task(worker()) for _ in range(500)]
        began = await reached(count, total // 10)
        ended = await reached(count, total * 9 // 10)
        await asyncio.gather(*workers)
    return (total * 9 // 10 - total // 10) / (ended - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    count: Synchronized[int] = multiprocessing.Value("q", 0, lock=False)  # type: ignore[assignment]
    ports: Any = multiprocessing.Queue()
    receivers = multiprocessing.Process(target=receive, args=(count, ports), daemon=True)
    receivers.start()
    try:
        port, slow_port = ports.get(timeout=10)
        good = [f"http://127.1.{n // 250}.{n % 250 + 1}:{port}/hook" for n in range(GOOD)]
        bad = [f"http://127.2.0.1:{slow_port}/slow", "http://127.3.0.1:9/dead"]
        print(f"{platform.machine()}, Python {platform.python_version()}, aiohttp {version('aiohttp')}")
        rows = []
        for _ in range(wanted.rounds):
            row = {
                "raw client": uvloop.run(raw(count, good, wanted.total)),
                "good alone": uvloop.run(measure(count, good, [], wanted.total)),
                "good beside bad": uvloop.run(measure(count, good, bad, wanted.total)),
            }
            rows.append(row)
            print("  ".join(f"{name} {value:,.0f}/s" for name, value in row.items()), flush=True)
        for name in rows[0]:
            print(f"{name:18} {statistics.median(row[name] for row in rows):10,.0f}/s")
        lost = statistics.median(1 - row["good beside bad"] / row["good alone"] for row in rows)
        share = statistics.median(row["good alone"] / row["raw client"] for row in rows)
        print(f"lost to the bad    {lost:10.1%}\nshare of raw       {share:10.0%}")
    finally:
        receivers.kill()
        receivers.join()


if __name__ == "__main__":
    main()
