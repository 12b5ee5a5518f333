"""Transfers at a million: what is due, the sweep, and the follower, beside the queries of the study that they replace.

    python -m bench.transfers [--total 1000000] [--on sqlite,postgresql,mariadb] [--write FILE]

Generates the data set, asks each question several times, and prints a line for each. Servers run with durable commits,
and PostgreSQL and MariaDB with 1 GB to keep pages in. Everything is made in a directory that is removed at the end.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from databases import DatabaseServer, mariadb, postgresql

from datp.archive import migrate
from datp.archive.database import Database
from datp.archive.queries import queries
from datp.settings import Settings
from datp.transfers.follower import Follower, Source
from datp.transfers.generate import Wanted, generate, generate_foreign, shift
from datp.transfers.ledger import PACKAGE, Ledger

HOUR_MS = 3_600_000
REPEATS = 20
SWEEP_BATCH = Settings().transfer_batch
SCAN_BATCH = 100_000
SERVERS: dict[str, Callable[[], DatabaseServer]] = {
    "postgresql": lambda: postgresql(("-c", "shared_buffers=1GB", "-c", "max_wal_size=4GB")),
    "mariadb": lambda: mariadb(("--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G")),
}

NAIVE = """
SELECT t.transferId, t.expirationDate, tsc.transferStateId, ts.transferStateChangeIdMax
FROM transfer t
JOIN (SELECT transferId, MAX(transferStateChangeId) transferStateChangeIdMax FROM transferStateChange
      GROUP BY transferId) ts ON ts.transferId = t.transferId
JOIN transferStateChange tsc ON tsc.transferStateChangeId = ts.transferStateChangeIdMax
WHERE tsc.transferStateId IN ('RECEIVED_PREPARE', 'RESERVED') AND t.expirationDate < {now}
LIMIT 100000"""
"""The study's query without structures of its own."""

STUDY_CLEAN_UP = """
DELETE FROM studyTimeout WHERE transferId IN (SELECT transferId FROM (
  SELECT tt1.transferId, MAX(tsc.transferStateChangeId) AS id
  FROM studyTimeout tt1 JOIN transferStateChange tsc ON tsc.transferId = tt1.transferId
  GROUP BY tt1.transferId) ts
JOIN transferStateChange tsc USING (transferId) WHERE tsc.transferStateChangeId = ts.id
  AND tsc.transferStateId IN ('RECEIVED_FULFIL', 'COMMITTED', 'FAILED', 'EXPIRED', 'EXPIRED_PREPARED',
    'EXPIRED_RESERVED', 'REJECTED', 'ABORTED'))"""
STUDY_INSERT = """
INSERT INTO studyTimeout (transferId, expirationDate)
SELECT t.transferId, t.expirationDate FROM transfer t
JOIN (SELECT transferId, MAX(transferStateChangeId) AS id FROM transferStateChange
      WHERE transferStateChangeId > {after} AND transferStateChangeId <= {until} GROUP BY transferId) ts
  ON ts.transferId = t.transferId
JOIN transferStateChange tsc ON tsc.transferStateChangeId = ts.id
WHERE tsc.transferStateId IN ('RECEIVED_PREPARE', 'RESERVED')
  AND NOT EXISTS (SELECT 1 FROM studyTimeout held WHERE held.transferId = t.transferId)"""
"""Its steps 3 and 6; without the last line it breaks on its own unique key as soon as a batch ends in mid-transfer."""


async def ms_of(work: Callable[[], Awaitable[object]], repeats: int = 1) -> float:
    """The median of so many times."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        await work()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


@contextmanager
def database_url(kind: str) -> Any:
    with tempfile.TemporaryDirectory(prefix="datp-bench-") as directory:
        if kind == "sqlite":
            yield f"sqlite:///{directory}/transfers.sqlite"
        else:
            server = SERVERS[kind]()
            try:
                yield server.url
            finally:
                server.stop()


async def measure(kind: str, url: str, total: int) -> dict[str, float]:
    database = Database(url, Settings(database_timeout_ms=600_000))
    await migrate.up(database.driver)
    figures: dict[str, float] = {}
    wanted = Wanted(total=total, expired=1_000)
    began = time.perf_counter()
    _, changes = await generate(database, wanted)
    figures["generate, s"] = time.perf_counter() - began
    figures["changes"] = changes
    if kind == "postgresql":
        await statement(database, "VACUUM ANALYZE datp_transfer", outside=True)
    ledger = Ledger(database)
    now = await ledger.now()
    known = queries(database.driver.dialect, PACKAGE)

    async def find_due() -> None:
        async with database.driver.reading() as connection:
            rows = await connection.rows(replace_lock(known["due_transfers"]), now=now, count=1_000)
        assert len(rows) == 1_000

    figures["1 000 due found, ms"] = await ms_of(find_due, REPEATS)
    figures["1 000 due swept, ms"] = await ms_of(lambda: ledger.expire_due(1_000))
    figures["empty tick, ms"] = await ms_of(lambda: ledger.expire_due(1_000), REPEATS)
    pending = sum(one.transfers for one in await ledger.would_expire(now + 400 * HOUR_MS))
    await shift(database, wanted.owner, -200 * HOUR_MS)
    began = time.perf_counter()
    swept = 0
    while number := await ledger.expire_due(SWEEP_BATCH):
        swept += number
    figures["swept"] = swept
    figures["sweep, s per 100 000"] = (time.perf_counter() - began) / swept * 100_000
    assert swept == pending

    began = time.perf_counter()
    await generate_foreign(database, wanted)
    figures["generate foreign, s"] = time.perf_counter() - began
    if kind == "postgresql":
        await statement(database, "VACUUM ANALYZE transfer", outside=True)
        await statement(database, "VACUUM ANALYZE transferStateChange", outside=True)
    figures.update(await measure_follower(database, kind))
    figures.update(await measure_study(database, kind))
    await database.close()
    return figures


async def measure_follower(database: Database, kind: str) -> dict[str, float]:
    follower = Follower(database, Source("hub"))
    rates = []
    while True:
        began = time.perf_counter()
        scanned = await follower.scan(SCAN_BATCH, due_max=1_000)
        if not scanned.changes:
            break
        if scanned.changes == SCAN_BATCH:
            rates.append(scanned.changes / (time.perf_counter() - began))
    third = max(1, len(rates) // 3)
    figures = {
        "follower, changes/s": statistics.median(rates),
        "follower, first third/s": statistics.median(rates[:third]),
        "follower, last third/s": statistics.median(rates[-third:]),
        "follower, idle tick, ms": await ms_of(follower.scan, REPEATS),
        "waiting": await follower.waiting(),
    }
    # The study's two closing statements, which settle some and then all that is due, and the clean-up after them.
    await statement(
        database,
        "INSERT INTO transferStateChange (transferId, transferStateId, createdDate)"
        f" SELECT transfer_id, 'ABORTED', {now_of(kind)} FROM datp_transfer_timeout LIMIT 10",
    )
    figures["10 settled, ms"] = await ms_of(follower.scan)
    await statement(
        database,
        "INSERT INTO transferStateChange (transferId, transferStateId, createdDate)"
        f" SELECT transfer_id, 'ABORTED', {now_of(kind)} FROM datp_transfer_timeout",
    )

    async def all_settled() -> None:
        while (await follower.scan(SCAN_BATCH)).changes:
            pass

    figures["all settled, ms"] = await ms_of(all_settled)
    assert await follower.waiting() == 0
    return figures


async def measure_study(database: Database, kind: str) -> dict[str, float]:
    """The study's own queries on the same data."""
    text = "TEXT" if kind == "sqlite" else "varchar(36)"
    moment = {"sqlite": "TEXT", "postgresql": "timestamp(3)", "mariadb": "datetime(3)"}[kind]
    await statement(database, f"CREATE TABLE studyTimeout (transferId {text} PRIMARY KEY, expirationDate {moment})")
    figures = {"study: naive, ms": await ms_of(lambda: rows(database, NAIVE.format(now=now_of(kind))))}
    ((last,),) = await rows(database, "SELECT MAX(transferStateChangeId) FROM transferStateChange")
    times = []
    for after in range(0, last, SCAN_BATCH):
        began = time.perf_counter()
        await statement(database, STUDY_CLEAN_UP)
        await statement(database, STUDY_INSERT.format(after=after, until=after + SCAN_BATCH))
        await rows(database, f"SELECT * FROM studyTimeout WHERE expirationDate < {now_of(kind)}")
        times.append((time.perf_counter() - began) * 1000)
    figures["study: first batch of 100 000, ms"] = times[0]
    figures["study: last batch of 100 000, ms"] = times[-2] if len(times) > 1 else times[-1]
    return figures


def now_of(kind: str) -> str:
    return {
        "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
        "postgresql": "(now() AT TIME ZONE 'UTC')",
        "mariadb": "UTC_TIMESTAMP(3)",
    }[kind]


def replace_lock(query: Any) -> Any:
    """The same question, asked without taking anything."""
    return replace(query, text=query.text.replace("FOR UPDATE SKIP LOCKED", ""))


async def statement(database: Database, text: str, *, outside: bool = False) -> None:
    async with database.driver.reading() if outside else database.driver.writing() as connection:
        await connection.execute(text)


async def rows(database: Database, text: str) -> list[tuple[Any, ...]]:
    asked = replace(queries(database.driver.dialect, PACKAGE)["last_transfer"], text=text.replace("%", "%"))
    async with database.driver.reading() as connection:
        return await connection.rows(asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, default=1_000_000)
    parser.add_argument("--on", default="sqlite,postgresql,mariadb")
    parser.add_argument("--write", type=Path, help="a file for the figures, JSON")
    wanted = parser.parse_args()
    figures = {}
    for kind in wanted.on.split(","):
        with database_url(kind) as url:
            figures[kind] = uvloop.run(measure(kind, url, wanted.total))
        print(kind)
        for says, value in figures[kind].items():
            print(f"  {says:36} {value:14,.2f}", flush=True)
    if wanted.write:
        wanted.write.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
