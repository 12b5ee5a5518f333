"""An API over an empty Valkey and an archive of its own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from servers import Server, valkey
from whole import Open, Whole, opener


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A store's server that the test may restart."""
    server = valkey()
    yield server
    server.stop()


@pytest.fixture
async def open_whole(valkey_server: Server, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens it, with settings of the test's own."""
    valkey_server.flush()
    async with opener(valkey_server.url, tmp_path) as opened:
        yield opened


@pytest.fixture
async def whole(open_whole: Open) -> Whole:
    return await open_whole()
