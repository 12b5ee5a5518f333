"""A pipeline reserves, waits and commits; when it fails, the money is released and the client is told."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web
from bank import Bank
from servers import Server
from worker.support import Engine, engine, output_of, until

from datp.archive.database import Database
from datp.model.status import Status
from datp.settings import Settings
from datp.transfers.ledger import Ledger

QUICK = Settings(
    partitions=2,
    transfer_look_ms=20,
    archive_delay_ms=0,
    archive_interval_ms=20,
    idle_look_ms=100,
    wake_interval_ms=50,
    outbound_networks="127.0.0.0/8",
)
OWNER = "acme"
HOLD = {
    "id": "hold",
    "step": "transfer/prepare",
    "with": {"payer": "anna", "payee": "bert", "currency": "USD", "expiresIn": "10m"},
}
COMMIT = {"id": "commit", "step": "transfer/fulfil"}


@pytest.fixture
async def bank(database: Database) -> AsyncIterator[Bank]:
    opened = Bank(database)
    opened.ledger = Ledger(database)
    await opened.open()
    yield opened
    await opened.check_books()


@pytest.fixture
async def eng(valkey_server: Server, bank: Bank, emptied_url: str) -> AsyncIterator[Engine]:
    valkey_server.flush()
    async with bank.database.driver.writing() as connection:
        await connection.execute("DELETE FROM datp_store")  # the engine's own store is archived here
    async with engine(valkey_server.url, replace(QUICK, database_url=emptied_url)) as opened:
        await opened.node(roles="worker,wakeup,archive,timeouts,webhooks")
        yield opened


def wait(timeout: str) -> dict[str, object]:
    return {"id": "approval", "step": "util/wait", "with": {"switch": "approved", "timeout": timeout}}


async def test_what_is_approved_is_committed(bank: Bank, eng: Engine) -> None:
    await eng.pipeline("transfer", HOLD, wait("5m"), COMMIT)
    tx_id = await eng.start("transfer", {"amount": "25.00"})
    await eng.phase(tx_id, "waiting")
    assert await bank.position("anna") == "25.00"
    await eng.transactions.set_switch(tx_id, "approved", True)
    reply = await eng.final(tx_id)
    assert (reply.status, output_of(reply)["state"]) == (Status.SUCCESS, "COMMITTED")
    assert await bank.position("bert") == "-25.00"


async def test_when_nobody_approves_the_money_is_released_and_the_client_is_told(bank: Bank, eng: Engine) -> None:
    told: list[dict[str, object]] = []

    async def hear(request: web.Request) -> web.Response:
        told.append(json.loads(await request.read()))
        return web.Response()

    app = web.Application()
    app.router.add_post("/hook", hear)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    try:
        await bank.ledger.save_participant(OWNER, "anna", f"http://127.0.0.1:{port}/hook")
        await eng.pipeline("transfer", HOLD, wait("200ms"), COMMIT)
        tx_id = await eng.start("transfer", {"amount": "25.00"}, metadata={"webhook": f"http://127.0.0.1:{port}/hook"})
        reply = await eng.final(tx_id)
        assert reply.status == Status.FAILED
        assert await bank.position("anna") == "0.00"

        async def both() -> bool:
            return len(told) >= 2

        await until(both, "the client and the payer are told")
        assert sorted(str(one["type"]) for one in told) == ["transaction.completed", "transfer.aborted"]
    finally:
        await runner.cleanup()


async def test_a_payer_with_too_little_fails_the_transaction(bank: Bank, eng: Engine) -> None:
    await eng.pipeline("transfer", HOLD, COMMIT)
    reply = await eng.run("transfer", {"amount": "1000.01"})
    assert reply.status == Status.FAILED
    assert output_of(reply)["code"] == "4001"


async def test_a_transfer_that_expired_meanwhile_is_not_committed(bank: Bank, eng: Engine) -> None:
    short = {**HOLD, "with": {**HOLD["with"], "expiresIn": "150ms"}}  # type: ignore[dict-item]
    expired = {"id": "expired", "step": "util/wait", "with": {"switch": "transfer", "timeout": "1m"}}
    await eng.pipeline("transfer", short, expired, COMMIT)
    reply = await eng.run("transfer", {"amount": "5"})
    assert (reply.status, output_of(reply)["code"]) == (Status.FAILED, "3303")
    assert await bank.position("anna") == "0.00"


async def test_what_is_missing_is_said(bank: Bank, eng: Engine) -> None:
    await eng.pipeline("transfer", HOLD, COMMIT)
    await eng.pipeline("alone", COMMIT)
    assert "amount is neither in the input nor in the definition" in str((await eng.run("transfer", {})).note)
    assert "nor a step before has a transferId" in str((await eng.run("alone", {})).note)
