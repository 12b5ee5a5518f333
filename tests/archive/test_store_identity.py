"""An archive belongs to one store, and to the latest of its lives."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from archived import PARTITIONS, STORE_ID, made

from datp.archive.database import Database
from datp.errors import DatabaseRefused
from datp.settings import Settings


@pytest.fixture
async def other(database: Database, url: str, settings: Settings) -> AsyncIterator[Database]:
    """Another process at the same archive."""
    opened = Database(url, settings)
    yield opened
    await opened.close()


async def test_a_store_may_register_again(database: Database, other: Database) -> None:
    await other.register_store(STORE_ID, 1, PARTITIONS)
    assert await other.write_states([made()]) == {}


async def test_another_store_is_refused(other: Database) -> None:
    with pytest.raises(DatabaseRefused, match=f"is the archive of store {STORE_ID}, not of other"):
        await other.register_store("other", 1, PARTITIONS)
    with pytest.raises(DatabaseRefused, match="has 2 partitions, but the store has 3"):
        await other.register_store(STORE_ID, 1, 3)


async def test_a_store_that_was_replaced_writes_nothing_more(database: Database, other: Database) -> None:
    assert await other.raise_epoch() == 2
    for refused in (
        database.write_states([made()]),
        database.raise_version(made().tx_id, 1, 2),
        database.register_store(STORE_ID, 1, PARTITIONS),
    ):
        with pytest.raises(DatabaseRefused, match="This store was replaced: the archive is at epoch 2"):
            await refused
    assert await database.read_states([made().tx_id]) == {}
    assert await other.write_states([made()]) == {}


async def test_who_comes_with_a_later_life_is_believed(database: Database, other: Database) -> None:
    await other.register_store(STORE_ID, 5, PARTITIONS)
    assert await other.raise_epoch() == 6


async def test_writes_under_way_are_done_before_the_epoch_is_raised(database: Database, other: Database) -> None:
    writing = [database.write_states([made(n)]) for n in range(20)]
    wrote = asyncio.ensure_future(asyncio.gather(*writing, return_exceptions=True))
    epoch = await other.raise_epoch()
    held = set(await other.read_states([made(n).tx_id for n in range(20)]))
    outcomes = await wrote
    assert epoch == 2
    for number, outcome in enumerate(outcomes):
        assert (made(number).tx_id in held) == (outcome == {}), outcome


async def test_no_store_to_be_rebuilt_is_said(database: Database) -> None:
    async with database.driver.writing() as connection:
        await connection.execute("DELETE FROM datp_store")
    with pytest.raises(DatabaseRefused, match="No store is archived"):
        await database.raise_epoch()
    with pytest.raises(DatabaseRefused, match="no longer the archive"):
        await database.write_states([made()])
