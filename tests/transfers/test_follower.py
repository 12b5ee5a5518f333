"""A history that others append to is followed: what is pending waits for its deadline, what is due is told once."""

import random

import pytest
from bank import NOW_MS, Time

from datp.archive.database import Database
from datp.errors import BadDefinition
from datp.transfers.follower import Follower, Source
from datp.transfers.generate import Wanted, generate, generate_foreign, shift
from datp.transfers.ledger import Ledger


class Hub:
    """Somebody else's tables, and a follower of them on a held clock."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.time = Time()
        self.follower = Follower(database, Source("hub"), self.time)

    async def run(self, *statements: str) -> None:
        async with self.database.driver.writing() as connection:
            for statement in statements:
                await connection.execute(statement)

    async def transfer(self, name: str, in_s: int, *states: str) -> None:
        at = f"2027-01-15 08:{in_s // 60:02d}:{in_s % 60:02d}"
        await self.run(
            "INSERT INTO transfer (transferId, amount, currencyId, expirationDate, createdDate)"
            f" VALUES ('{name}', '1', 'USD', '{at}', '2027-01-15 08:00:00')"
        )
        for state in states:
            await self.change(name, state)

    async def change(self, name: str, state: str, number: int | None = None) -> None:
        columns, values = ("transferStateChangeId, ", f"{number}, ") if number is not None else ("", "")
        if number is not None and self.database.driver.dialect == "postgresql":
            await self.run(f"SELECT setval('transferstatechange_transferstatechangeid_seq', {number}, true)")
        await self.run(
            f"INSERT INTO transferStateChange ({columns}transferId, transferStateId, createdDate)"
            f" VALUES ({values}'{name}', '{state}', '2027-01-15 08:00:00')"
        )

    async def waiting(self) -> list[str]:
        return await self._names("SELECT transfer_id FROM datp_transfer_timeout ORDER BY transfer_id")

    async def timed_out(self) -> list[str]:
        return await self._names("SELECT transfer_id FROM datp_transfer_timed_out ORDER BY transfer_id")

    async def _names(self, text: str) -> list[str]:
        from dataclasses import replace

        asked = replace(self.follower._queries["now"], text=text)
        async with self.database.driver.reading() as connection:
            return [row[0] for row in await connection.rows(asked)]


@pytest.fixture
async def hub(database: Database) -> Hub:
    opened = Hub(database)
    await opened.run("DROP TABLE IF EXISTS transfer", "DROP TABLE IF EXISTS transferStateChange")
    await generate_foreign(database, Wanted(total=0, expired=0))
    return opened


def test_the_held_time_is_the_one_in_the_texts() -> None:
    from datetime import UTC, datetime

    assert datetime.fromtimestamp(NOW_MS / 1000, UTC).isoformat() == "2027-01-15T08:00:00+00:00"


async def test_what_is_pending_waits_and_what_is_settled_does_not(hub: Hub) -> None:
    await hub.transfer("a", 60, "RECEIVED_PREPARE", "RESERVED")
    await hub.transfer("b", 60, "RECEIVED_PREPARE", "RESERVED", "RECEIVED_FULFIL")
    await hub.transfer("c", 60, "RECEIVED_PREPARE")
    scanned = await hub.follower.scan()
    assert (scanned.after, scanned.changes, scanned.due) == (0, 6, 0)
    assert await hub.waiting() == ["a", "c"]
    await hub.change("a", "ABORTED_BY_SOMETHING_NEW")
    await hub.change("c", "RESERVED")
    await hub.follower.scan()
    assert await hub.waiting() == ["c"]
    assert (await hub.follower.scan()).changes == 0


async def test_what_is_due_is_told_once_and_a_later_change_does_not_tell_it_again(hub: Hub) -> None:
    await hub.transfer("a", 60, "RECEIVED_PREPARE")
    await hub.transfer("b", 90, "RECEIVED_PREPARE")
    hub.time.now_ms += 60_000
    assert (await hub.follower.scan()).due == 1
    assert (await hub.waiting(), await hub.timed_out()) == (["b"], ["a"])
    await hub.change("a", "RESERVED")
    assert (await hub.follower.scan()).due == 1
    assert await hub.timed_out() == ["a"]


async def test_no_segment_yet_and_nothing_there(hub: Hub) -> None:
    scanned = await hub.follower.scan()
    assert (scanned.after, scanned.until, scanned.changes, scanned.due) == (0, 0, 0, 0)


async def test_a_lower_id_that_is_committed_later_is_not_missed(hub: Hub) -> None:
    for name in "abc":
        await hub.transfer(name, 60)
    await hub.change("a", "RECEIVED_PREPARE", 1)
    await hub.change("c", "RECEIVED_PREPARE", 5)
    await hub.follower.scan()
    assert await hub.waiting() == ["a", "c"]
    await hub.change("b", "RECEIVED_PREPARE", 3)
    scanned = await hub.follower.scan()
    assert (scanned.found_late, await hub.waiting()) == (1, ["a", "b", "c"])
    await hub.change("c", "RESERVED", 2)  # it came late, and is not the last of c; nor is it lost
    await hub.change("b", "COMMITTED", 4)
    await hub.follower.scan()
    assert await hub.waiting() == ["a", "c"]


async def test_a_hole_is_looked_at_until_nobody_can_fill_it(hub: Hub) -> None:
    await hub.transfer("a", 3_000)
    await hub.change("a", "RECEIVED_PREPARE", 10)
    await hub.follower.scan()
    assert await hub._names("SELECT first_id FROM datp_segment_gap") == [1]
    hub.time.now_ms += hub.follower.source.hole_ms
    await hub.follower.scan()
    assert await hub._names("SELECT first_id FROM datp_segment_gap") == []


async def test_two_that_scan_at_once_read_each_change_once(hub: Hub) -> None:
    import asyncio

    for number in range(20):
        await hub.transfer(f"t{number:02d}", 60, "RECEIVED_PREPARE")
    await hub.follower.scan(5)
    other = Follower(hub.database, hub.follower.source, hub.time)
    while any(scanned.changes for scanned in await asyncio.gather(hub.follower.scan(5), other.scan(5))):
        pass
    assert len(await hub.waiting()) == 20


async def test_batches_of_any_size_come_to_the_same(hub: Hub) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    await generate_foreign(hub.database, Wanted(total=600, expired=20, seed=seed))
    chance = random.Random(seed)
    hub.time.now_ms = await Ledger(hub.database).now()
    while (await hub.follower.scan(chance.randint(1, 400))).changes:
        pass
    while (await hub.follower.scan()).due:
        pass
    wanted = await hub._names(
        "SELECT transferId FROM transferStateChange AS c WHERE transferStateId IN ('RECEIVED_PREPARE', 'RESERVED')"
        " AND transferStateChangeId = (SELECT max(transferStateChangeId) FROM transferStateChange"
        " WHERE transferId = c.transferId) ORDER BY transferId"
    )
    assert sorted(await hub.waiting() + await hub.timed_out()) == wanted
    assert len(await hub.timed_out()) == 20
    assert await hub.follower.disagreeing() == ([], "")


def test_a_table_is_a_name() -> None:
    with pytest.raises(BadDefinition, match="is not the name of a table"):
        Source("hub", transfers="transfer; DROP TABLE transfer")


async def test_generated_transfers_are_as_many_as_asked_and_their_books_balance(database: Database) -> None:
    from bank import Bank

    transfers, changes = await generate(database, Wanted(total=2_000, expired=50, seed=3))
    assert (transfers, 3.0 < changes / transfers < 3.4) == (2_000, True)
    bank = Bank(database)
    await bank.check_books()
    ledger = Ledger(database)
    assert sum(one.transfers for one in await ledger.would_expire(await ledger.now())) == 50
    await shift(database, "dev", 7 * 24 * 3_600_000)
    assert await ledger.would_expire(await ledger.now()) == []
    await shift(database, "dev", -14 * 24 * 3_600_000)
    while await ledger.expire_due(100):
        pass
    await bank.check_books()
