"""Connections: what the server is, what happens when it is away, and URLs that can't be one."""

from collections.abc import Callable

import pytest
from archived import PARTITIONS, STORE_ID, made
from databases import DatabaseServer

from datp.archive import migrate
from datp.archive.database import Database
from datp.errors import BadRequest, DatabaseRefused, DatabaseUnreachable
from datp.settings import Settings

DURABLE = {"sqlite": "synchronous", "postgresql": "synchronous_commit", "mariadb": "innodb_flush_log_at_trx_commit"}


async def test_a_server_says_what_it_is_and_what_makes_a_commit_durable(database: Database) -> None:
    said = await database.ping()
    assert said["server"] == database.driver.dialect
    assert said["version"][0].isdigit()
    assert said["schema"] == migrate.migrations(database.driver.dialect)[-1].version
    assert DURABLE[database.driver.dialect] in said
    if database.driver.dialect == "sqlite":
        assert (said["synchronous"], said["journal_mode"]) == (2, "wal")


async def test_a_server_without_tables_can_be_asked_too(empty_url: str, settings: Settings) -> None:
    database = Database(empty_url, settings)
    assert (await database.ping())["schema"] == 0
    await database.close()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_a_server_that_is_away_is_unreachable_until_it_is_back(
    kind: str, servers: Callable[[str], DatabaseServer], database: Database
) -> None:
    await database.write_states([made(0)])
    servers(kind).kill()
    try:
        for _ in range(2):
            with pytest.raises(DatabaseUnreachable):
                await database.write_states([made(1)])
            with pytest.raises(DatabaseUnreachable):
                await database.read_states([made(0).tx_id])
    finally:
        servers(kind).start()
    assert await database.write_states([made(1)]) == {}
    assert len(await database.live_states()) == 2


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_a_database_that_is_not_there_is_refused(
    kind: str, servers: Callable[[str], DatabaseServer], settings: Settings
) -> None:
    database = Database(servers(kind).url_of("nowhere"), settings)
    with pytest.raises(DatabaseRefused, match="nowhere"):
        await database.open()
    await database.close()


async def test_nobody_at_the_port_is_unreachable(settings: Settings) -> None:
    for url in ("postgresql://datp@127.0.0.1:9/datp", "mariadb://datp@127.0.0.1:9/datp"):
        database = Database(url, settings)
        with pytest.raises(DatabaseUnreachable):
            await database.ping()
        await database.close()


async def test_a_directory_that_is_not_there_is_said_with_its_whole_path(settings: Settings) -> None:
    database = Database("sqlite:///no/such/archive.sqlite", settings)
    with pytest.raises(DatabaseRefused, match=r"There is no directory /.*/no/such for the archive archive.sqlite"):
        await database.open()
    await database.close()


async def test_the_same_connections_serve_many_at_once(database: Database) -> None:
    import asyncio

    await asyncio.gather(*(database.write_states([made(n)]) for n in range(30)))
    found = await asyncio.gather(*(database.read_states([made(n).tx_id]) for n in range(30)))
    assert [len(one) for one in found] == [1] * 30


@pytest.mark.parametrize(
    "url",
    ["", "sqlite:", "sqlite:///", "postgresql://host", "oracle://host/x", "mariadb://h:x/y", "redis://localhost/1"],
)
def test_what_is_not_the_url_of_a_database_is_refused(url: str, settings: Settings) -> None:
    with pytest.raises(BadRequest, match="is not the URL of a database"):
        Database(url, settings)


async def test_a_store_that_never_registered_can_not_write(url: str, settings: Settings, database: Database) -> None:
    other = Database(url, settings)
    with pytest.raises(AssertionError, match="registered"):
        await other.write_states([made()])
    await other.close()
    await database.register_store(STORE_ID, 1, PARTITIONS)
