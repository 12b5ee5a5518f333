"""Senders that are real processes, and are killed (-9) while they send: every end is told, under one id."""

import asyncio
from collections import Counter
from pathlib import Path

from cli.processes import DatpProcess
from standardwebhooks.webhooks import Webhook
from webhooks.conftest import KEY
from webhooks.receivers import OK, Request, receiver
from webhooks.test_sender import nothing_is_owed
from worker.support import Engine

from datp.api.transactions import StartRequest

ENVIRONMENT = {
    "DATP_WEBHOOK_KEYS": KEY,
    "DATP_OUTBOUND_NETWORKS": "127.0.0.0/8",
    "DATP_WEBHOOK_TIMEOUT_MS": "1000",
    "DATP_WEBHOOK_CLAIM_MS": "1500",
    "DATP_WEBHOOK_RETRIES": "50ms,50ms,50ms,50ms",
    "DATP_WEBHOOK_FAIL_LIMIT": "100000",
    "DATP_LEASE_MS": "1500",
    "DATP_LEASE_MARGIN_MS": "300",
}
TOTAL = 400


async def test_every_end_is_told_though_senders_are_killed_while_they_send(eng: Engine, tmp_path: Path) -> None:
    def sender() -> DatpProcess:
        arguments = ("node", "--roles", "webhooks", "--store", eng.store.url, "--json")
        process = DatpProcess(*arguments, cwd=tmp_path, environment=ENVIRONMENT)
        process.json_line()
        return process

    async def slowly(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.02)
        writer.write(OK)

    await eng.pipeline("echo", "util/echo")
    await eng.node()
    senders = [await asyncio.to_thread(sender) for _ in range(2)]
    try:
        async with receiver(slowly) as there:
            ids: list[str] = []
            for _ in range(TOTAL // 100):
                asked = [StartRequest("echo", metadata={"webhook": there.url()})] * 100
                for started in await eng.transactions.start_batch("acme", asked):
                    assert not isinstance(started, Exception)
                    ids.append(started.tx_id)
            for number in range(2):
                await there.heard(TOTAL // 4 * (number + 1))
                await asyncio.to_thread(senders[number].kill)
                senders[number] = await asyncio.to_thread(sender)
            await nothing_is_owed(eng)
            told = Counter(request.headers["webhook-id"] for request in there.requests)
            by_transaction = {request.json["data"]["txId"]: request.headers["webhook-id"] for request in there.requests}
            for request in there.requests:
                Webhook(KEY).verify(request.body, request.headers)
        assert sorted(by_transaction) == sorted(ids), "each end is told at least once"
        assert len(told) == TOTAL, "and has one webhook-id"
        assert told.total() <= TOTAL + 2 * 50, "only what was under way is told again"
    finally:
        for process in senders:
            await asyncio.to_thread(process.kill)
