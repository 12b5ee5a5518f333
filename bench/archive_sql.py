"""How fast the archive writes: states of 1.5 KiB as the hot store gives them, beside the bare driver doing the same.

The bare driver gets rows that are encoded already, and does nothing but the same upsert into the same table, with the
same indexes, in the same batches, with durable commits. Both are measured in turns, so that what else the machine does
meets both. The server runs with its defaults, but that PostgreSQL and MariaDB are given 512 MB to keep pages in.

    python -m bench.archive_sql [--states 60000] [--batch 500] [--writers 2] [--on sqlite,postgresql,mariadb]
"""

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from databases import DatabaseServer, mariadb, postgresql

from datp.archive import migrate
from datp.archive.database import Database, encode
from datp.archive.queries import queries
from datp.archive.record import archived_state, to_row
from datp.model.ids import Partition, new_transaction_id
from datp.settings import Settings

REPEATS = 5
PARTITIONS = 8
STATE_BYTES = 1_536
NOW_MS = 1_800_000_000_000
OWNERS = tuple(f"owner-{number}" for number in range(20))
TYPES = tuple(f"type-{number}" for number in range(10))
STATUSES = ("success", "success", "success", "success", "failed", "aborted", "cancelled", "timeout", "internal-error")

SERVERS: dict[str, Callable[[], DatabaseServer]] = {
    "postgresql": lambda: postgresql(("-c", "shared_buffers=512MB")),
    "mariadb": lambda: mariadb(("--innodb-buffer-pool-size=512M",)),
}


class Source:
    """States as the hot store gives them; each with a new id."""

    def __init__(self) -> None:
        self._chance = Random(11)
        self._number = 0
        self._documents = [self._document() for _ in range(64)]

    def take(self, count: int) -> list[tuple[str, int, dict[str, bytes]]]:
        return [self._one() for _ in range(count)]

    def _one(self) -> tuple[str, int, dict[str, bytes]]:
        self._number += 1
        chance = self._chance
        now_ms = NOW_MS + self._number // 30
        tx_id = new_transaction_id(Partition(self._number % PARTITIONS), now_ms, chance.getrandbits(65))
        fields = {
            "phase": b"complete",
            "status": chance.choice(STATUSES).encode(),
            "version": b"%d" % (now_ms + 50),
            "sequence": b"%d" % (now_ms + 50),
            "started_at": b"%d" % now_ms,
            "owner": chance.choice(OWNERS).encode(),
            "type": chance.choice(TYPES).encode(),
            "pipeline_version": b"0f3a9c51",
            "group": b"main",
            "external_id": b"order-%d" % self._number if self._number % 4 == 0 else b"",
            "request_hash": b"9b1c" * 8,
            "output": b'{"ok":true,"reference":"%016x"}' % chance.getrandbits(64),
            "state": chance.choice(self._documents),
        }
        return tx_id, now_ms + 50, fields

    def _document(self) -> bytes:
        """A flow as it is stored: names that repeat, and values that don't."""
        flow: list[dict[str, Any]] = []
        while len(document := json.dumps({"transactionData": {}, "flow": flow}).encode()) < STATE_BYTES - 400:
            chance = self._chance
            flow.append(
                {
                    "i": len(flow),
                    "vogPath": f"charge-{len(flow)}",
                    "ts1": NOW_MS + chance.randrange(10_000),
                    "ts2": NOW_MS + chance.randrange(10_000),
                    "ts3": NOW_MS + chance.randrange(10_000),
                    "stepId": f"{chance.getrandbits(64):016x}",
                    "nodeId": "node-7f3a",
                    "output": {"reference": f"{chance.getrandbits(96):024x}", "amount": chance.randrange(100_000)},
                    "completionStatus": "success",
                }
            )
        return document


async def measure(url: str, states: int, batch: int, writers: int) -> dict[str, float]:
    """Rates per second, the medians of some rounds, and DATP's share of the bare driver's."""
    database = Database(url, Settings())
    await migrate.up(database.driver)
    await database.open()
    await database.register_store("bench", 1, PARTITIONS)
    source = Source()
    rates: dict[str, list[float]] = {"datp": [], f"datp, {writers} writers": [], "bare": []}
    sizes: list[float] = []
    for _ in range(REPEATS):
        rates["datp"].append(await _with_datp(database, source.take(states), batch, 1))
        rows = [to_row(archived_state(*one)) for one in source.take(states)]
        sizes.append(statistics.mean(len(row[-1]) for row in rows))
        rates["bare"].append(await asyncio.to_thread(_bare, url, rows, batch))
        rates[f"datp, {writers} writers"].append(await _with_datp(database, source.take(states), batch, writers))
    await database.close()
    medians = {name: statistics.median(found) for name, found in rates.items()}
    share = statistics.median(ours / bare for ours, bare in zip(rates["datp"], rates["bare"], strict=True))
    return {**medians, "datp / bare": share, "bytes of a document": statistics.median(sizes)}


async def _with_datp(database: Database, given: list[Any], batch: int, writers: int) -> float:
    batches = iter(_batches(given, batch))

    async def write() -> None:
        """As an archiver does: while one batch is written, the next is made and encoded."""
        writing = None
        for some in batches:
            states = [archived_state(*one) for one in some]
            await encode(states)
            if writing is not None:
                assert await writing == {}
            writing = asyncio.create_task(database.write_states(states))
            await asyncio.sleep(0)  # an archiver asks the store for more now, and so lets it begin
        assert writing is None or await writing == {}

    gc.collect()
    gc.freeze()  # what was made for the whole round isn't what an archiver holds
    begun = time.perf_counter()
    await asyncio.gather(*(write() for _ in range(writers)))
    return len(given) / (time.perf_counter() - begun)


def _bare(url: str, rows: Sequence[tuple[Any, ...]], batch: int) -> float:
    begun = time.perf_counter()
    count = 0
    for count, some in enumerate(_batches(rows, batch), 1):
        if count == 1:
            write, close = _bare_writer(url)
            begun = time.perf_counter()
        write(sorted(some))
    rate = len(rows) / (time.perf_counter() - begun)
    close()
    return rate


def _bare_writer(url: str) -> tuple[Callable[[list[Any]], None], Callable[[], None]]:
    scheme = url.partition("://")[0]
    if scheme == "sqlite":
        import sqlite3

        file = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        file.execute("PRAGMA synchronous=FULL")
        file.execute("PRAGMA wal_autocheckpoint=10000")
        file.execute("PRAGMA cache_size=-65536")
        text = queries("sqlite")["upsert_states"].text

        def write_sqlite(rows: list[Any]) -> None:
            file.execute("BEGIN IMMEDIATE")
            file.executemany(text, rows)
            file.execute("COMMIT")

        return write_sqlite, file.close
    if scheme == "postgresql":
        import psycopg

        server = psycopg.connect(url, autocommit=True)
        query = queries("postgresql")["upsert_states"]
        server.execute("CREATE TEMPORARY TABLE datp_transaction_rows (LIKE datp_transaction) ON COMMIT DELETE ROWS")
        described = server.execute("SELECT * FROM datp_transaction_rows").description or ()
        types = [column.type_code for column in described]

        def write_postgresql(rows: list[Any]) -> None:
            with server.transaction(), server.cursor() as cursor:
                with cursor.copy("COPY datp_transaction_rows FROM STDIN (FORMAT BINARY)") as copy:
                    copy.set_types(types)
                    for row in rows:
                        copy.write_row(row)
                cursor.execute(query.text.encode())

        return write_postgresql, server.close
    return _bare_mariadb(url)


def _bare_mariadb(url: str) -> tuple[Callable[[list[Any]], None], Callable[[], None]]:
    import re

    import asyncmy

    loop = asyncio.new_event_loop()
    socket = url.partition("unix_socket=")[2]
    text = re.sub(r"%\(\w+\)s", "%s", queries("mariadb")["upsert_states"].text)
    connection = loop.run_until_complete(asyncmy.connect(user="root", db="datp", unix_socket=socket))

    async def write_rows(rows: list[Any]) -> None:
        async with connection.cursor() as cursor:
            await cursor.executemany(text, rows)
        await connection.commit()

    return lambda rows: loop.run_until_complete(write_rows(rows)), connection.close


def _batches(given: Sequence[Any], batch: int) -> Iterator[Sequence[Any]]:
    return (given[place : place + batch] for place in range(0, len(given), batch))


@contextmanager
def server(kind: str) -> Iterator[str]:
    """The URL of an empty database, while it runs."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="datp-bench-") as directory:
            yield f"sqlite:///{directory}/archive.sqlite"
        return
    running = SERVERS[kind]()
    try:
        yield running.url
    finally:
        running.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=30_000, help="of each round")
    parser.add_argument("--batch", type=int, default=Settings().archive_batch)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--on", default="sqlite,postgresql,mariadb")
    wanted = parser.parse_args()
    for kind in wanted.on.split(","):
        with server(kind) as url:
            print(kind)
            for name, value in uvloop.run(measure(url, wanted.states, wanted.batch, wanted.writers)).items():
                print(f"  {name:20} {value:10.0%}" if "/" in name else f"  {name:20} {value:10,.0f}")


if __name__ == "__main__":
    main()
