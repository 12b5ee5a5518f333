"""Tests of the archive: an engine whose sleepers leave memory almost at once."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from archived import QUICK
from servers import Server
from worker.support import Engine, engine


@pytest.fixture
async def eng(valkey_server: Server, emptied_url: str) -> AsyncIterator[Engine]:
    """An engine on a real clock, with an archive; sleepers leave memory almost at once."""
    valkey_server.flush()
    async with engine(valkey_server.url, replace(QUICK, database_url=emptied_url)) as opened:
        yield opened
