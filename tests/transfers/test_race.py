"""Many processes move the same transfers, and are killed: each transfer ends exactly once, and the books balance."""

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from bank import Bank

from datp.archive.database import Database
from datp.model.reply import iso
from datp.transfers.ledger import Ledger
from datp.transfers.transfer import TransferRequest

OWNER = "generated"
RACERS = 4


async def race(database: Database, url: str, transfers: int, kills: int) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    ledger = Ledger(database)
    for name in ("anna", "bert"):
        await ledger.save_participant(OWNER, name)
        await ledger.set_limits(OWNER, name, "USD", "1000000000")

    async def prepare(number: int, now: int) -> None:
        sides = ("anna", "bert") if number % 2 else ("bert", "anna")
        ends = iso(now + 120_000 if number % 3 else now + chance.randint(2_000, 6_000))
        await ledger.prepare(OWNER, TransferRequest(f"r-{number}", *sides, f"{number % 90 + 1}.25", "USD", ends))

    for first in range(0, transfers, 50):
        now = await ledger.now()
        await asyncio.gather(*(prepare(number, now) for number in range(first, min(first + 50, transfers))))

    async def start(number: int) -> asyncio.subprocess.Process:
        racer = Path(__file__).with_name("racer.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable, racer, url, str(chance.getrandbits(32)), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        await process.stdout.readline()
        return process

    racers = [await start(number) for number in range(RACERS)]
    for kill in range(kills):
        victim = chance.randrange(RACERS)
        if racers[victim].returncode is None:
            racers[victim].kill()
            await racers[victim].wait()
        racers[victim] = await start(RACERS + kill)
    for racer in racers:
        await asyncio.wait_for(racer.wait(), 240)
    assert [racer.returncode for racer in racers] == [0] * RACERS
    bank = Bank(database)
    await bank.check_books()
    assert await ledger.check() == []
    told = await bank.rows("SELECT transfer FROM datp_transfer_event WHERE kind <> 'late-fulfil'")
    ends = Counter(row[0] for row in told)
    assert len(ends) == transfers and set(ends.values()) == {1}
    states = Counter(row[0] for row in await bank.rows("SELECT state FROM datp_transfer"))
    print(dict(states))
    assert set(states) <= {"COMMITTED", "ABORTED", "EXPIRED_RESERVED"}


async def test_each_transfer_ends_exactly_once_whoever_is_killed(database: Database, emptied_url: str) -> None:
    await race(database, emptied_url, transfers=200, kills=3)


@pytest.mark.long
async def test_so_do_many(database: Database, emptied_url: str) -> None:
    await race(database, emptied_url, transfers=20_000, kills=60)
