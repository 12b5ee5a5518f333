"""How fast pages of the list are read when a million transactions are archived.

The rows are written in bulk, past the archiver. Every filter and every pair of filters is asked for, with common values
and rare ones: the first page and the hundredth (or the last, where there are fewer), by cursor, each again and again
once it is warm, through `list_transactions`, which looks into the store too.

    python -m bench.search [--rows 1000000] [--limit 50] [--repeats 20] [--on sqlite,postgresql,mariadb] [--slowest 5]
"""

import argparse
import asyncio
import itertools
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

from bench.archive_sql import Source, server
from datp.api.listing import list_transactions
from datp.archive import migrate
from datp.archive.database import Database
from datp.archive.record import COLUMNS, Row, archived_state, to_row
from datp.archive.search import SearchFilter
from datp.embedded import EmbeddedServer
from datp.hotstore.store import Store
from datp.model.ids import Partition, new_transaction_id
from datp.model.status import Status
from datp.settings import VALUE_MAX, Settings

PARTITIONS: Final = 8
STARTED_MS: Final = 1_700_000_000_000
EACH_MS: Final = 400
"""Between two starts: a million of them take 4.6 days."""

HUNDREDTH: Final = 100

SHARES: Final[dict[str, list[tuple[str, float]]]] = {
    "owner": [("common", 0.6), ("rare", 0.006), ("very-rare", 0.000_02)],
    "type": [("common", 0.6), ("rare", 0.006), ("very-rare", 0.000_02)],
    "status": [("success", 0.93), ("failed", 0.006), ("internal-error", 0.000_02)],
}
"""Of the values that are asked for: common, rare (six thousand of a million), and twenty of a million. The other rows
have one of a hundred owners and types, and three other statuses."""

OTHERS: Final = {
    "owner": [f"owner-{n}" for n in range(100)],
    "type": [f"type-{n}" for n in range(100)],
    "status": ["aborted", "cancelled", "timeout"],
}

USED_AGAIN: Final = "used-again"
"""An externalId that ten owners use."""

PARENT: Final = new_transaction_id(Partition(3), STARTED_MS, 7)
"""The parent of a hundred branches."""


class Asked(NamedTuple):
    """A filter, as it is asked for."""

    says: str
    wanted: SearchFilter


def rows(count: int) -> Iterator[Row]:
    """The rows, in the order in which they began; documents are those of the archive's bench."""
    chance = random.Random(5)
    document_at, encoding_at = COLUMNS.index("document"), COLUMNS.index("encoding")
    documents = [
        (row[encoding_at], row[document_at]) for row in (to_row(archived_state(*one)) for one in Source().take(256))
    ]

    def pick(name: str) -> str:
        drawn = chance.random()
        for value, share in SHARES[name]:
            if drawn < share:
                return value
            drawn -= share
        return chance.choice(OTHERS[name])

    for number in range(count):
        started_at = STARTED_MS + number * EACH_MS
        ended_at = started_at + chance.randrange(50, 60_000)
        parent = PARENT if number % (count // 100) == 5 else None
        external_id = f"order-{number}" if number % 2 else None
        if number % (count // 10) == 10:
            external_id = USED_AGAIN
        yield (
            new_transaction_id(Partition(number % PARTITIONS), started_at, chance.getrandbits(65)),
            *(ended_at, ended_at, "complete", pick("status"), 1, pick("owner"), pick("type"), "0f3a9c51", "main"),
            *(external_id, "9b1c" * 8, parent, started_at, ended_at, 0),
            *chance.choice(documents),
        )


def asked(count: int) -> list[Asked]:
    """Every filter, every pair of filters, and all of one kind with each value."""
    middle = STARTED_MS + count // 2 * EACH_MS
    options: dict[str, list[tuple[str, dict[str, Any]]]] = {
        name: [(value, {name: Status(value) if name == "status" else value}) for value, _ in SHARES[name]]
        for name in SHARES
    }
    options["externalId"] = [
        ("one", {"external_id": f"order-{count // 2 + 1}"}),
        (USED_AGAIN, {"external_id": USED_AGAIN}),
    ]
    options["time"] = [
        ("until the middle", {"until_ms": middle}),
        ("a quarter", {"from_ms": middle - count // 8 * EACH_MS, "until_ms": middle + count // 8 * EACH_MS}),
        ("a minute", {"from_ms": middle, "until_ms": middle + 60_000}),
    ]
    options["parent"] = [("a hundred", {"parent": PARENT})]
    found = [Asked("nothing", SearchFilter())]
    found += [Asked(f"{name}={says}", SearchFilter(**given)) for name in options for says, given in options[name]]
    for (one, ones), (other, others) in itertools.combinations(options.items(), 2):
        for (says, given), (also_says, also_given) in itertools.product(ones, others):
            found.append(Asked(f"{one}={says} {other}={also_says}", SearchFilter(**given, **also_given)))
    return found


# ── writing them ─────────────────────────────────────────────────────────────────────────────────────────────────


def fill(url: str, count: int) -> None:
    """So many rows are in the table, and the database knows how they are distributed."""
    if url.startswith("sqlite"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        file.execute("PRAGMA synchronous=OFF")
        file.execute("PRAGMA cache_size=-524288")
        file.executemany(f"INSERT INTO datp_transaction VALUES ({', '.join('?' * len(COLUMNS))})", rows(count))
        file.commit()
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file.close()
    elif url.startswith("postgresql"):
        _fill_postgresql(url, count)
    else:
        asyncio.run(_fill_mariadb(url, count))


def _fill_postgresql(url: str, count: int) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        described = connection.execute("SELECT * FROM datp_transaction").description or ()
        text = "COPY datp_transaction FROM STDIN (FORMAT BINARY)"
        with connection.cursor() as cursor, cursor.copy(text) as copy:
            copy.set_types([column.type_code for column in described])
            for row in rows(count):
                copy.write_row(row)
        connection.execute("VACUUM ANALYZE datp_transaction")


async def _fill_mariadb(url: str, count: int) -> None:
    import asyncmy

    connection = await asyncmy.connect(user="root", db="datp", unix_socket=url.partition("unix_socket=")[2])
    text = f"INSERT INTO datp_transaction VALUES ({', '.join(['%s'] * len(COLUMNS))})"
    async with connection.cursor() as cursor:
        await cursor.execute("SET unique_checks = 0")
        given = rows(count)
        while some := list(itertools.islice(given, 2_000)):
            await cursor.executemany(text, some)
            await connection.commit()
        await cursor.execute("ANALYZE TABLE datp_transaction")
    connection.close()


# ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Timed(NamedTuple):
    """One page of one filter."""

    says: str
    page: int
    lines: int
    times_ms: list[float]

    @property
    def p99_ms(self) -> float:
        return percentile(self.times_ms, 0.99)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def measure(url: str, count: int, limit: int, repeats: int) -> list[Timed]:
    with tempfile.TemporaryDirectory() as folder:
        engine = EmbeddedServer(Path(folder) / "engine")
        engine.start()
        settings = Settings(store_url=engine.url, partitions=PARTITIONS)
        store, database = Store(engine.url, settings), Database(url, settings)
        try:
            await migrate.up(database.driver)
            await asyncio.to_thread(fill, url, count)
            await database.open()
            await store.open(create=True)
            return [timed for one in asked(count) for timed in await _measure_one(store, database, one, limit, repeats)]
        finally:
            await database.close()
            await store.close()
            engine.stop()


async def _measure_one(store: Store, database: Database, one: Asked, limit: int, repeats: int) -> list[Timed]:
    """The first page and the hundredth, or the last; going there makes it warm."""
    cursors = [""]
    while len(cursors) < HUNDREDTH:
        page = await list_transactions(store, database, one.wanted, cursor=cursors[-1], limit=limit)
        if page.next_cursor is None:
            break
        cursors.append(page.next_cursor)
    timed = []
    for number in sorted({1, len(cursors)}):
        times = []
        for _ in range(repeats + 1):
            began = time.perf_counter()
            page = await list_transactions(store, database, one.wanted, cursor=cursors[number - 1], limit=limit)
            times.append((time.perf_counter() - began) * 1000)
        timed.append(Timed(one.says, number, len(page.transactions), times[1:]))
    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--limit", type=int, default=50, help="lines of a page")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--on", default="sqlite,postgresql,mariadb")
    parser.add_argument("--slowest", type=int, default=5, help="how many of the slowest pages are told")
    wanted = parser.parse_args()
    assert wanted.rows * EACH_MS + STARTED_MS < VALUE_MAX
    for kind in wanted.on.split(","):
        with server(kind) as url:
            began = time.perf_counter()
            found = uvloop.run(measure(url, wanted.rows, wanted.limit, wanted.repeats))
            took = time.perf_counter() - began
        print(f"{kind}: {wanted.rows} rows, {len(found)} pages of {wanted.limit}, {took:.0f} s in all")
        for says, some in (
            ("first pages", [one for one in found if one.page == 1]),
            ("hundredth pages", [one for one in found if one.page == HUNDREDTH]),
            ("other last pages", [one for one in found if one.page not in (1, HUNDREDTH)]),
        ):
            times = [ms for one in some for ms in one.times_ms]
            p50, p99 = statistics.median(times), percentile(times, 0.99)
            worst = max(one.p99_ms for one in some)
            print(
                f"  {says:18} {len(some):4}   p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   worst page's p99 {worst:6.2f} ms"
            )
        for one in sorted(found, key=lambda one: one.p99_ms, reverse=True)[: wanted.slowest]:
            print(f"    {one.p99_ms:7.2f} ms  page {one.page:3}, {one.lines:3} lines: {one.says}")


if __name__ == "__main__":
    main()
