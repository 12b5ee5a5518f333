"""Tests that run on every database that we claim, each a real server; the database is empty when a test begins."""

import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from databases import DatabaseServer, mariadb, postgresql, postgresql15
from servers import Unavailable

from datp.archive import migrate
from datp.archive.database import Database
from datp.settings import Settings

STORE_ID: Final = "0123456789ab"
PARTITIONS: Final = 2

KINDS: Final = ("sqlite", "postgresql", "postgresql15", "mariadb")
SERVERS: Final[dict[str, Callable[[], DatabaseServer]]] = {
    "postgresql": postgresql,
    "postgresql15": postgresql15,
    "mariadb": mariadb,
}

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
