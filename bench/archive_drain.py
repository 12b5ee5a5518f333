"""What archiving costs: one worker process drains a full queue, without an archive, and until SQL has the last state.

With an archive, a second process has the role `archive` (or, with --together, the worker's process has both roles).
Both are measured in turns. An end is archived at once here, not after `archive_delay_ms`.

    python -m bench.archive_drain [--total 40000] [--repeats 3] [--on sqlite,postgresql] [--together]
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import uvloop

from bench.archive_sql import server as database_server
from bench.drain import echo, fill, noop, prepare
from datp.archive import migrate
from datp.archive.database import Database
from datp.embedded import EmbeddedServer
from datp.hotstore.store import Store
from datp.settings import Settings, environment_variable
from datp.steps.contract import MARK
from datp.steps.registry import Registry
from datp.worker.node import Node

GIVEN = {"archive_delay_ms": 0}


async def measure(total: int, database_url: str, *, together: bool) -> float:
    """Transactions per second, until the last has ended; with a database, until SQL has it."""
    with tempfile.TemporaryDirectory() as folder:
        engine = EmbeddedServer(Path(folder) / "engine", options={"auto-aof-rewrite-percentage": "0"})
        engine.start()
        roles = "worker,archive" if database_url and together else "worker"
        settings = Settings(store_url=engine.url, partitions=1, workers=200, roles=roles, **GIVEN)  # type: ignore[arg-type]
        store, transactions = await prepare(engine.url, settings)
        await fill(transactions, "noop", total)
        archiver = None
        if database_url:
            await _emptied(database_url, settings)
            settings = replace(settings, database_url=database_url if together else "")
            if not together:
                archiver = _archiver(engine.url, database_url, folder)
                await _is_there(store)
        node = Node(settings, Registry([getattr(noop, MARK), getattr(echo, MARK)]), url=engine.url)
        began = time.perf_counter()
        await node.start()
        await _until_done(store, total, is_archived=bool(database_url))
        seconds = time.perf_counter() - began
        await node.stop()
        if archiver is not None:
            archiver.send_signal(signal.SIGTERM)
            await asyncio.to_thread(archiver.wait, 30)
        if database_url:
            await _check(database_url, total)
        await store.close()
        engine.stop()
    return total / seconds


def _archiver(store_url: str, database_url: str, folder: str) -> subprocess.Popen[bytes]:
    given = {"store_url": store_url, "database_url": database_url, "roles": "archive", **GIVEN}
    environment = {**os.environ, **{environment_variable(name): str(value) for name, value in given.items()}}
    with (Path(folder) / "archiver.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "datp", "node"], env=environment, stdout=log, stderr=log)


async def _is_there(store: Store) -> None:
    while True:
        async with store.turn() as turn:
            replies = [turn.list_nodes(partition) for partition in range(store.partitions)]
        if any(reply.value for reply in replies):
            return
        await asyncio.sleep(0.05)


async def _until_done(store: Store, total: int, *, is_archived: bool) -> None:
    """All have ended; and nothing is left to be archived, which is what SQL has not told to be durable."""
    begun = False
    while True:
        await asyncio.sleep(0.02)
        async with store.turn() as turn:
            reply = turn.queue_stats(0)
        _, groups, flat = reply.value
        sizes = dict(zip(flat[0::2], flat[1::2], strict=True))
        begun = begun or sizes[b"to_archive"] > 0
        is_idle = begun and not sum(ins + outs for _, ins, outs, *_ in groups) and not sizes[b"running"]
        if is_idle and (sizes[b"to_archive"] == 0 if is_archived else sizes[b"to_archive"] == total):
            return


async def _emptied(url: str, settings: Settings) -> None:
    database = Database(url, settings)
    await migrate.up(database.driver)
    async with database.driver.writing() as connection:
        for table in ("datp_transaction", "datp_store"):
            await connection.execute(f"DELETE FROM {table}")
    await database.close()


async def _check(url: str, total: int) -> None:
    """SQL has all of them."""
    database = Database(url, Settings())
    await database.open()
    [kind] = await database.types()
    found = await database.count_final(2**41, kind)
    await database.close()
    assert found == total, f"SQL has {found} of {total}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--total", type=int, default=40_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--on", default="sqlite,postgresql")
    parser.add_argument("--together", action="store_true", help="one process has both roles")
    wanted = parser.parse_args()
    for kind in wanted.on.split(","):
        with database_server(kind) as url:
            without, with_archive = [], []
            for _ in range(wanted.repeats):
                without.append(uvloop.run(measure(wanted.total, "", together=False)))
                with_archive.append(uvloop.run(measure(wanted.total, url, together=wanted.together)))
        costs = statistics.median(1 - ours / bare for ours, bare in zip(with_archive, without, strict=True))
        print(kind)
        print(f"  without an archive   {statistics.median(without):10,.0f}/s")
        print(f"  until it is in SQL   {statistics.median(with_archive):10,.0f}/s   it costs {costs:.0%}")


if __name__ == "__main__":
    main()
