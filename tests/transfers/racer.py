"""A process that fulfils, aborts, extends and sweeps at random until nothing is pending: python racer.py URL SEED."""

import asyncio
import random
import sys

from datp.archive.database import Database
from datp.errors import BadRequest, DatabaseUnreachable, TransferRefused
from datp.settings import Settings
from datp.transfers.ledger import Ledger
from datp.transfers.state import PENDING

OWNER = "generated"


async def race(url: str, seed: int) -> None:
    chance = random.Random(seed)
    database = Database(url, Settings(database_timeout_ms=60_000))
    ledger = Ledger(database)
    print("races", flush=True)
    while pending := await ledger.in_state(OWNER, sorted(PENDING), count=400):
        transfer = chance.choice(pending)
        now = await ledger.now()
        move = chance.choice(("fulfil", "fulfil", "abort", "extend", "sweep", "sweep"))
        try:
            if move == "sweep":
                await ledger.expire_due(chance.randint(1, 200))
            elif move == "extend":
                await ledger.extend(OWNER, transfer.transfer_id, now + chance.randint(1, 3_000))
            else:
                await getattr(ledger, move)(OWNER, transfer.transfer_id)
        except (TransferRefused, BadRequest, DatabaseUnreachable):
            continue  # somebody else was quicker, or the database broke a deadlock
    await database.close()


asyncio.run(race(sys.argv[1], int(sys.argv[2])))
