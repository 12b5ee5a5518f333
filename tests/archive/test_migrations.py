"""Tables come to be, change and go by migrations; a schema that isn't known is refused."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from worker.support import Engine

from datp.archive import migrate
from datp.archive.database import Database
from datp.archive.queries import DIALECTS
from datp.errors import DatabaseRefused
from datp.settings import Settings

SCHEMA = {
    "sqlite": "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name",
    "postgresql": """
        SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name, '' AS indexdef
        FROM information_schema.columns WHERE table_schema = 'public'
        UNION ALL SELECT tablename, indexname, '', '', '', '', indexdef FROM pg_indexes WHERE schemaname = 'public'
        ORDER BY 1, 2, 7""",
    "mariadb": """
        SELECT table_name, column_name, column_type, is_nullable, column_default, collation_name, 0
        FROM information_schema.columns WHERE table_schema = DATABASE()
        UNION ALL SELECT table_name, column_name, index_name, '', '', '', seq_in_index
        FROM information_schema.statistics WHERE table_schema = DATABASE()
        ORDER BY 1, 2, 3, 7""",
}


@pytest.fixture
async def empty(empty_url: str, settings: Settings) -> AsyncIterator[Database]:
    """A database without tables."""
    opened = Database(empty_url, settings)
    yield opened
    await opened.close()


async def schema(database: Database) -> list[tuple[object, ...]]:
    """Every table, column and index, as the database describes them."""
    from dataclasses import replace

    dialect = database.driver.dialect
    asked = replace(
        database._queries["list_schema"],
        text=SCHEMA[dialect].replace("%", "%%" if dialect != "sqlite" else "%"),
        names=(),
    )
    async with database.driver.reading() as connection:
        return await connection.rows(asked)


async def test_up_and_down_and_up_again_is_equal_to_a_fresh_schema(empty: Database) -> None:
    known = migrate.migrations(empty.driver.dialect)
    assert await migrate.up(empty.driver) == list(known)
    fresh = await schema(empty)
    for place in range(len(known) - 1, -1, -1):  # numbers may have been left out
        assert await migrate.down(empty.driver, known[place - 1].version if place else 0) == [known[place]]
    assert {row[0] if empty.driver.dialect != "sqlite" else row[1] for row in await schema(empty)} == {"datp_schema"}
    assert await migrate.up(empty.driver) == list(known)
    assert await migrate.up(empty.driver) == []
    assert await schema(empty) == fresh


async def test_a_database_without_tables_is_refused_with_what_to_do(empty: Database) -> None:
    with pytest.raises(DatabaseRefused, match="no tables of DATP yet; make them with: datp migrate up"):
        await empty.open()
    await migrate.up(empty.driver)
    await empty.open()


async def test_a_migration_that_is_missing_is_named(empty: Database) -> None:
    await migrate.up(empty.driver)
    last = migrate.migrations(empty.driver.dialect)[-1]
    async with empty.driver.writing() as connection:
        await connection.execute(f"DELETE FROM datp_schema WHERE version = {last.version}")
    if last.version > 1:
        with pytest.raises(DatabaseRefused, match=f"lacks migration {last.version} .{last.name}."):
            await empty.open()


async def test_a_database_that_was_away_is_checked_before_it_is_used(empty: Database) -> None:
    empty.open_when_used("0123456789ab", 1, 2)
    for _ in range(2):
        with pytest.raises(DatabaseRefused, match="no tables of DATP yet; make them with: datp migrate up"):
            await empty.read_states(["tx-00-1"])
    await migrate.up(empty.driver.within)
    assert await empty.read_states(["tx-00-1"]) == {}
    assert await empty.known_store() == ("0123456789ab", 1, 2), "it was made this store's"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
async def test_a_node_refuses_a_schema_that_it_does_not_know(eng: Engine) -> None:
    database = eng.archive.database  # type: ignore[union-attr]
    async with database.writing() as connection:
        await connection.execute("INSERT INTO datp_schema (version, name, applied_at) VALUES (9999, 'later', 0)")
    try:
        with pytest.raises(DatabaseRefused, match="migration 9999, which this version of DATP doesn't know"):
            await eng.node(roles="worker,wakeup,archive")
    finally:
        async with database.writing() as connection:
            await connection.execute("DELETE FROM datp_schema WHERE version = 9999")


async def test_a_schema_of_a_newer_version_is_refused_and_left_alone(empty: Database) -> None:
    await migrate.up(empty.driver)
    async with empty.driver.writing() as connection:
        await connection.execute("INSERT INTO datp_schema (version, name, applied_at) VALUES (99, 'later', 0)")
    for refused in (empty.open(), migrate.up(empty.driver), migrate.down(empty.driver, 0)):
        with pytest.raises(DatabaseRefused, match="has migration 99, which this version of DATP doesn't know"):
            await refused
    assert [one.is_known for one in await migrate.status(empty.driver)][-1] is False


async def test_two_that_migrate_at_once_do_it_once(empty: Database, empty_url: str, settings: Settings) -> None:
    other = Database(empty_url, settings)
    try:
        first, second = await asyncio.gather(migrate.up(empty.driver), migrate.up(other.driver))
    finally:
        await other.close()
    assert sorted([len(first), len(second)]) == [0, len(migrate.migrations(empty.driver.dialect))]


async def test_a_migration_that_fails_says_at_which_statement(empty: Database) -> None:
    async with empty.driver.writing() as connection:
        await connection.execute("CREATE TABLE datp_transaction (x integer)")
    with pytest.raises(DatabaseRefused, match=r"Migration 1 \(archive\) stopped at statement 2 of \d+: .*"):
        await migrate.up(empty.driver)


def test_every_dialect_has_the_same_migrations() -> None:
    assert len({tuple((one.version, one.name) for one in migrate.migrations(dialect)) for dialect in DIALECTS}) == 1


def test_a_statement_ends_with_a_semicolon_at_the_end_of_a_line() -> None:
    text = "-- a; comment\nCREATE TABLE a (\n  x text DEFAULT 'a;b'\n);\n\n  -- more;\nDROP TABLE b; \n"
    assert migrate.statements(text) == ["CREATE TABLE a (\n  x text DEFAULT 'a;b'\n)", "DROP TABLE b"]
