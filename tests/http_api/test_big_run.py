"""Starts over many connections, some twice, while every process is killed once: each starts, ends and is told."""

import asyncio
import socket
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from cli.processes import DatpProcess
from servers import Server
from worker.support import until

from datp.archive import migrate
from datp.archive.database import Database
from datp.archive.keyring import Keyring
from datp.archive.webhook_keys import WebhookKeys
from datp.client import AsyncClient, Reply, verify_webhook
from datp.definitions import Definitions
from datp.hotstore.invariants import broken_invariants
from datp.hotstore.store import Store
from datp.model.pipeline import parse_pipeline
from datp.model.signature import SigningKey
from datp.settings import Settings

OWNER: Final = "acme"
QUICK: Final = {
    "DATP_LEASE_MS": "3000",
    "DATP_LEASE_MARGIN_MS": "500",
    "DATP_WEBHOOK_TIMEOUT_MS": "2000",
    "DATP_WEBHOOK_CLAIM_MS": "4000",
    "DATP_WEBHOOK_FAIL_LIMIT": "100000",
    "DATP_WEBHOOK_RETRIES": "200ms,500ms,1s,2s,4s",
    "DATP_OUTBOUND_NETWORKS": "127.0.0.0/8",
}
"""After a crash it goes on within seconds."""


class Receiver:
    """Takes webhooks, verifies them, and remembers what each told of."""

    def __init__(self, key: str) -> None:
        self.ids: dict[str, set[str]] = defaultdict(set)
        """txId → the webhook-ids of its ends."""
        self.statuses: Counter[str] = Counter()
        self.deliveries = 0
        self._key = key

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/hook", self._take)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1_024)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        finally:
            await runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        webhook = verify_webhook(request.headers, await request.read(), self._key)
        assert webhook.type == "transaction.completed"
        self.deliveries += 1
        if webhook.id not in self.ids[webhook.reply.tx_id]:
            self.statuses[webhook.reply.status] += 1
        self.ids[webhook.reply.tx_id].add(webhook.id)
        return web.Response()


class Processes:
    """An API, a worker and a sender, each a process, that is killed and started again."""

    def __init__(self, directory: Path, store_url: str, database_url: str) -> None:
        self._directory = directory
        self._environment = {**QUICK, "DATP_STORE_URL": store_url, "DATP_DATABASE_URL": database_url}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._running: dict[str, DatpProcess] = {}

    async def start(self, roles: str) -> None:
        more = ("--port", str(self.port)) if roles == "api" else ()
        process = DatpProcess(
            "node", "--roles", roles, "--json", *more, cwd=self._directory, environment=self._environment
        )
        self._running[roles] = process
        await asyncio.to_thread(process.json_line)

    async def kill(self, roles: str) -> None:
        """Killed without a word, and started again."""
        await asyncio.to_thread(self._running.pop(roles).kill)
        await self.start(roles)

    async def stop(self) -> None:
        while self._running:
            await asyncio.to_thread(self._running.popitem()[1].stop)


async def big_run(server: Server, directory: Path, *, starts: int, connections: int) -> None:
    """Every start is answered, every transaction completes once, and the receiver hears of each by one webhook-id."""
    server.flush()
    settings = replace(Settings(partitions=2), database_url=f"sqlite:///{directory}/archive.sqlite")
    database = Database(settings.database_url, settings)
    await migrate.up(database.driver)
    store = Store(server.url, settings)
    await store.open(create=True)
    definitions = Definitions(store, database)
    await definitions.save_group("main", {})
    steps = [{"id": f"s{number}", "step": "util/echo"} for number in range(3)]
    await definitions.save(parse_pipeline({"name": "three", "steps": steps}, settings), activate=True)
    _, key = await Keyring(database).create(OWNER, "client", "", now_ms=1)
    [signing] = await WebhookKeys(database).first(OWNER, lambda count: bytes(range(count)), store.clock.now_ms())
    receiver = Receiver(SigningKey(signing.secret).for_receivers)
    processes = Processes(directory, server.url, settings.database_url)
    roles = ("api", "worker,wakeup,archive", "webhooks")
    try:
        await asyncio.gather(*(processes.start(role) for role in roles))
        async with (
            receiver.served() as hook,
            AsyncClient(
                f"http://127.0.0.1:{processes.port}", key=key, connections_max=connections, retry_for_s=120
            ) as client,
        ):
            answered = 0

            async def start(number: int) -> Reply:
                nonlocal answered
                reply = await client.start(
                    "three", {"n": number}, external_id=f"order-{number}", metadata={"webhook": hook}
                )
                answered += 1
                return reply

            async def kill_each() -> None:
                for place, role in enumerate(roles, 1):
                    await until(lambda share=place / 4: _is(answered >= starts * share), "so many are answered", 120)
                    await processes.kill(role)

            killing = asyncio.create_task(kill_each())
            # Every tenth is started twice, at about the same time.
            numbers = sorted([*range(starts), *range(0, starts, 10)])
            try:
                replies = await asyncio.gather(*(start(number) for number in numbers))
                await killing
            finally:
                killing.cancel()
            ids: dict[int, set[str]] = defaultdict(set)
            for number, reply in zip(numbers, replies, strict=True):
                ids[number].add(reply.tx_id)
            assert all(len(found) == 1 for found in ids.values()), "started twice, it is one transaction"
            assert len({tx_id for found in ids.values() for tx_id in found}) == starts

            await until(lambda: _is(len(receiver.ids) >= starts), "every end was told", 180)
            assert {len(found) for found in receiver.ids.values()} == {1}, "one webhook-id for each"
            assert receiver.statuses == {"success": starts} and receiver.deliveries >= starts
            ended = Counter([one.status async for one in client.list(transaction_type="three")])
            assert ended == {"success": starts}
        assert await completed(store) == {"success": starts}, "each has completed once, by the exact counts"
        print(f"{starts} starts, {len(numbers)} requests at least, {receiver.deliveries} deliveries")
        await processes.stop()
        assert not await broken_invariants(store)
    finally:
        await processes.stop()
        await store.close()
        await database.close()


async def completed(store: Store) -> dict[str, int]:
    """Final status → how many, of the last quarter of an hour or more."""
    now_s = store.clock.now_ms() // 1000
    slots = [(3, now_s // 1000 * 1000 - back * 1000) for back in range(2)]
    async with store.turn() as turn:
        replies = [turn.read_counts(partition, slots) for partition in range(store.partitions)]
    counts: Counter[str] = Counter()
    for reply in replies:
        for slot in reply.value:
            for name, number in slot.items():
                what, status, *_ = name.split("|")
                if what == "completed":
                    counts[status] += number
    return dict(counts)


async def _is(claim: bool) -> bool:
    return claim


async def test_a_small_run_with_a_kill_of_each_process(valkey_server: Server, tmp_path: Path) -> None:
    await big_run(valkey_server, tmp_path, starts=300, connections=30)


@pytest.mark.long
async def test_the_big_run(valkey_server: Server, tmp_path: Path) -> None:
    await big_run(valkey_server, tmp_path, starts=10_000, connections=100)
