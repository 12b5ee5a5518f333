"""Tests of the archive run on every database that we claim, each a real server."""

import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from archived import PARTITIONS, STORE_ID
from databases import DatabaseServer, mariadb, postgresql, postgresql15
from servers import Server, Unavailable
from worker.support import Engine, engine

from datp.archive import migrate
from datp.archive.database import Database
from datp.settings import Settings

KINDS: Final = ("sqlite", "postgresql", "postgresql15", "mariadb")
SERVERS: Final[dict[str, Callable[[], DatabaseServer]]] = {
    "postgresql": postgresql,
    "postgresql15": postgresql15,
    "mariadb": mariadb,
}

QUICK: Final = Settings(
    partitions=2,
    lease_ms=1_500,
    lease_margin_ms=300,
    sweep_interval_ms=100,
    cancel_grace_ms=400,
    shutdown_grace_ms=1_000,
    idle_look_ms=200,
    wake_interval_ms=50,
    wake_claim_ms=400,
    evict_after_ms=1,
    archive_delay_ms=0,
    archive_interval_ms=20,
    archive_claim_ms=400,
    archive_lock1_ms=300,
    archive_lock2_ms=400,
    heartbeat_ms=200,
    definitions_look_ms=100,
)
"""Short intervals, so that a test takes no longer than what it is about."""

NO_SKIP: Final = os.environ.get("DATP_TEST_NO_SKIP") == "1"

_numbers = count(1)


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], DatabaseServer]]:
    """The server of a kind, started when it is first asked for."""
    running: dict[str, DatabaseServer] = {}

    def server(kind: str) -> DatabaseServer:
        if kind not in running:
            try:
                running[kind] = SERVERS[kind]()
            except Unavailable as error:
                if NO_SKIP:
                    raise
                pytest.skip(str(error))
        return running[kind]

    yield server
    for one in running.values():
        one.stop()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def empty_url(kind: str, servers: Callable[[str], DatabaseServer], tmp_path: Path) -> str:
    """A database in which nothing is."""
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/empty.sqlite"
    return servers(kind).create(f"empty{next(_numbers)}")


@pytest.fixture(scope="session")
def migrated() -> set[str]:
    """The databases whose tables have been made."""
    return set()


@pytest.fixture
def url(kind: str, servers: Callable[[str], DatabaseServer], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The database that tests share, one after the other."""
    return f"sqlite:///{tmp_path_factory.getbasetemp()}/archive.sqlite" if kind == "sqlite" else servers(kind).url


@pytest.fixture
async def emptied_url(url: str, migrated: set[str], settings: Settings) -> str:
    """The shared database, in which nothing is."""
    opened = Database(url, settings)
    try:
        if url not in migrated:
            await migrate.up(opened.driver)
            migrated.add(url)
        async with opened.driver.writing() as connection:
            for table in tables(opened):
                await connection.execute(f"DELETE FROM {table}")
    finally:
        await opened.close()
    return url


@pytest.fixture
async def eng(valkey_server: Server, emptied_url: str) -> AsyncIterator[Engine]:
    """An engine on a real clock, with an archive; sleepers leave memory almost at once."""
    valkey_server.flush()
    async with engine(valkey_server.url, replace(QUICK, database_url=emptied_url)) as opened:
        yield opened


@pytest.fixture
async def database(emptied_url: str, settings: Settings) -> AsyncIterator[Database]:
    """An archive in which nothing is, of a registered store."""
    opened = Database(emptied_url, settings)
    try:
        await opened.open()
        await opened.register_store(STORE_ID, 1, PARTITIONS)
        yield opened
    finally:
        await opened.close()


def tables(database: Database) -> list[str]:
    """Every table that the migrations make."""
    text = "\n".join(one.up for one in migrate.migrations(database.driver.dialect))
    return re.findall(r"CREATE TABLE (\w+)", text)
