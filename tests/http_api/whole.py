"""The whole behind a real HTTP server: a store, an archive, a node that runs, and keys of two owners."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from http_serving import Client, Said, served
from worker.support import Engine, engine

from datp.api.http.all_routes import api_routes, with_description
from datp.api.http.api import Api
from datp.api.http.app import HttpApp
from datp.api.http.door import Door
from datp.archive import migrate
from datp.archive.drivers import driver_for
from datp.archive.keyring import Keyring
from datp.settings import Settings

QUICK = Settings(
    partitions=2,
    lease_ms=1_500,
    lease_margin_ms=300,
    sweep_interval_ms=100,
    cancel_grace_ms=400,
    shutdown_grace_ms=1_000,
    idle_look_ms=200,
    wake_interval_ms=50,
    heartbeat_ms=200,
    definitions_look_ms=100,
    longpoll_look_ms=60_000,
    events_heartbeat_ms=60_000,
    archive_interval_ms=20,
)


@dataclass
class Whole:
    """Everything that a test of the API needs."""

    eng: Engine
    api: Api
    client: Client
    """Of owner acme."""
    other: Client
    """Of owner other."""
    anybody: Client

    async def start(self, transaction_type: str, **body: Any) -> Said:
        said = await self.client.post("/v1/transactions", {"transactionType": transaction_type, **body})
        assert said.status in (200, 202), said
        return said

    async def tx_id(self, transaction_type: str, **body: Any) -> str:
        """Of one that was just started."""
        tx_id: str = (await self.start(transaction_type, **body)).body["txId"]
        return tx_id


Open = Callable[..., Awaitable[Whole]]


@asynccontextmanager
async def opener(server_url: str, directory: Path) -> AsyncIterator[Open]:
    """What opens it, with settings of the test's own; it is closed at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def opened(*, is_running: bool = True, url: str = server_url, **settings: Any) -> Whole:
            given = replace(QUICK, database_url=f"sqlite:///{directory / 'archive.sqlite'}", **settings)
            driver = driver_for(given.database_url, given)
            await migrate.up(driver)
            await driver.close()
            eng = await stack.enter_async_context(engine(url, given, "main", "other"))
            if is_running:
                await eng.node(roles="worker,wakeup,archive")
            api = Api(given, url=url)
            await api.open()
            stack.push_async_callback(api.close)
            app = HttpApp(with_description(api_routes(api)), Door(api.access), api.load)
            anybody = await stack.enter_async_context(served(app))
            stack.callback(api.answer_waiters)
            assert eng.archive is not None
            keyring = Keyring(eng.archive.database)
            keys = [await keyring.create(owner, "client", "", now_ms=1) for owner in ("acme", "other")]
            acme, other = (anybody.as_(text) for _, text in keys)
            return Whole(eng, api, acme, other, anybody)

        yield opened
