"""Tests of the archive: an engine whose sleepers leave memory almost at once."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from archived import QUICK
from node_processes import Processes
from servers import Server
from worker.support import Engine, engine


@pytest.fixture
async def eng(valkey_server: Server, emptied_url: str) -> AsyncIterator[Engine]:
    """An engine on a real clock, with an archive; sleepers leave memory almost at once."""
    valkey_server.flush()
    async with engine(valkey_server.url, replace(QUICK, database_url=emptied_url)) as opened:
        yield opened


@pytest.fixture
def processes(eng: Engine, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(eng, tmp_path)
    yield made
    for process in made.running:
        process.kill()
