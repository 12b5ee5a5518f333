"""Tests of the archive: an engine whose sleepers leave memory almost at once."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import pytest
from servers import Server
from worker.support import Engine, engine

from datp.settings import Settings

QUICK: Final = Settings(
    partitions=2,
    lease_ms=1_500,
    lease_margin_ms=300,
    sweep_interval_ms=100,
    cancel_grace_ms=400,
    shutdown_grace_ms=1_000,
    idle_look_ms=200,
    wake_interval_ms=50,
    wake_claim_ms=400,
    evict_after_ms=1,
    archive_delay_ms=0,
    archive_interval_ms=20,
    archive_claim_ms=400,
    archive_lock1_ms=300,
    archive_lock2_ms=400,
    heartbeat_ms=200,
    definitions_look_ms=100,
)
"""Short intervals, so that a test takes no longer than what it is about."""


@pytest.fixture
async def eng(valkey_server: Server, emptied_url: str) -> AsyncIterator[Engine]:
    """An engine on a real clock, with an archive; sleepers leave memory almost at once."""
    valkey_server.flush()
    async with engine(valkey_server.url, replace(QUICK, database_url=emptied_url)) as opened:
        yield opened
