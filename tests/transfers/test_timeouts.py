"""The role timeouts: what is due is expired soon, and the transaction that waits for a transfer goes on."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bank import OWNER, Bank
from servers import Server
from worker.support import Engine, engine, output_of, until

from datp.archive.database import Database
from datp.model.reply import iso
from datp.settings import Settings
from datp.steps import Context, WaitForSwitch
from datp.transfers.ledger import Ledger
from datp.transfers.state import TransferState

QUICK = Settings(
    partitions=2,
    transfer_look_ms=20,
    transfer_claim_ms=200,
    transfer_batch=7,
    archive_delay_ms=0,
    archive_interval_ms=20,
    evict_after_ms=1,
    idle_look_ms=100,
    wake_interval_ms=50,
)
ROLES = "worker,wakeup,archive,timeouts"


@pytest.fixture
async def bank(database: Database) -> AsyncIterator[Bank]:
    """On the database's own clock."""
    opened = Bank(database)
    opened.ledger = Ledger(database)
    opened.time.now_ms = await opened.ledger.now()
    await opened.open()
    yield opened
    await opened.check_books()


@pytest.fixture
async def eng(valkey_server: Server, bank: Bank, emptied_url: str) -> AsyncIterator[Engine]:
    valkey_server.flush()
    async with bank.database.driver.writing() as connection:
        await connection.execute("DELETE FROM datp_store")  # the engine's own store is archived here
    from dataclasses import replace

    async with engine(valkey_server.url, replace(QUICK, database_url=emptied_url)) as opened:
        yield opened


async def waiter(eng: Engine) -> str:
    """A transaction that waits for the switch `transfer`, and has left memory."""

    async def run(context: Context) -> Any:
        return context.switch("transfer") or WaitForSwitch("transfer")

    eng.step("test/waits", run)
    await eng.pipeline("waits", "test/waits")
    return await eng.start("waits")


async def expired(bank: Bank, transfer_id: str) -> bool:
    return (await bank.ledger.read(OWNER, transfer_id)).state == TransferState.EXPIRED_RESERVED


async def test_what_is_due_is_expired_soon_by_whichever_node(bank: Bank, eng: Engine) -> None:
    for _ in range(2):
        await eng.node(roles=ROLES)
    now = await bank.ledger.now()
    transfers = [await bank.prepared(amount="1.00", expiration=iso(now + 3_000 + number)) for number in range(30)]
    await until(lambda: expired(bank, transfers[-1].transfer_id), "the last one is expired")
    for transfer in transfers:
        assert await bank.events(transfer) == ["expired"]

    async def told() -> bool:
        return await bank.ledger.lateness_ms() is not None and not await bank.ledger.claim_events(1, 0)

    await until(told, "everything is told")
    late = await bank.ledger.lateness_ms()
    assert late is not None and 0 <= late[0] <= late[1]


async def test_the_transaction_that_waits_for_a_transfer_goes_on_when_it_expires(bank: Bank, eng: Engine) -> None:
    tx_id = await waiter(eng)
    await eng.node(roles=ROLES)
    transfer = await bank.prepared(expiration=iso(await bank.ledger.now() + 500), tx_id=tx_id)
    assert transfer.switch == "transfer"
    reply = await eng.final(tx_id)  # type: ignore[arg-type]
    assert output_of(reply) == "EXPIRED"


@pytest.mark.parametrize(("end", "said"), [("fulfil", "COMMITTED"), ("abort", "ABORTED")])
async def test_it_goes_on_when_the_transfer_is_decided_otherwise(bank: Bank, eng: Engine, end: str, said: str) -> None:
    tx_id = await waiter(eng)
    await eng.node(roles=ROLES)
    transfer = await bank.prepared(expiration=None, tx_id=tx_id)
    await getattr(bank.ledger, end)(OWNER, transfer.transfer_id)
    assert output_of(await eng.final(tx_id)) == said  # type: ignore[arg-type]


async def test_one_that_is_told_by_nobody_yet_is_told_after_the_claim_of_a_teller_that_died(
    bank: Bank, eng: Engine
) -> None:
    tx_id = await waiter(eng)
    transfer = await bank.prepared(expiration=None, tx_id=tx_id)
    await bank.ledger.fulfil(OWNER, transfer.transfer_id)
    assert len(await bank.ledger.claim_events(10, claim_ms=300)) == 1  # and then it is killed
    assert await bank.ledger.claim_events(10, claim_ms=300) == []
    await eng.node(roles=ROLES)
    assert output_of(await eng.final(tx_id)) == "COMMITTED"  # type: ignore[arg-type]


async def test_who_is_gone_keeps_nobody_from_being_told(bank: Bank, eng: Engine) -> None:
    tx_id = await waiter(eng)
    await eng.node(roles=ROLES)
    await eng.phase(tx_id, "waiting")  # type: ignore[arg-type]
    await eng.transactions.cancel(tx_id)  # type: ignore[arg-type]
    gone = await bank.prepared(expiration=None, tx_id=tx_id, amount="1.00")
    never = await bank.prepared(expiration=None, tx_id="tx-01-1hf7yat00g0123456789abcd"[:28], amount="1.00")
    for transfer in (gone, never):
        await bank.ledger.fulfil(OWNER, transfer.transfer_id)

    async def told() -> bool:
        await asyncio.sleep(0)
        events = await bank.ledger.events("committed")
        return len(events) == 2 and all(event.told_at for event in events)

    await until(told, "both are done with")
