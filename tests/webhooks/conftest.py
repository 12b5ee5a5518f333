"""The engine on a real clock, on an empty Valkey, with short intervals."""

from collections.abc import AsyncIterator

import pytest
from servers import Server
from worker.support import Engine, engine

from datp.settings import Settings

QUICK = Settings(
    partitions=2,
    lease_ms=1_500,
    lease_margin_ms=300,
    sweep_interval_ms=100,
    cancel_grace_ms=400,
    shutdown_grace_ms=1_000,
    idle_look_ms=200,
    wake_interval_ms=100,
    heartbeat_ms=200,
    definitions_look_ms=100,
)


@pytest.fixture
async def eng(valkey_server: Server) -> AsyncIterator[Engine]:
    valkey_server.flush()
    async with engine(valkey_server.url, QUICK) as opened:
        yield opened
