"""Pipelines in a store and a database, without a node; a test starts one when it needs it."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from servers import Server
from worker.support import Engine, engine

from datp.api.operations import Operations
from datp.api.pipelines import Pipelines
from datp.archive.events import OperatorEvents
from datp.settings import Settings


@pytest.fixture
def kind() -> str:
    """Which database; tests that are about SQL ask for each."""
    return "sqlite"


@pytest.fixture
async def eng(valkey_server: Server, emptied_url: str, settings: Settings) -> AsyncIterator[Engine]:
    valkey_server.flush()
    given = replace(settings, database_url=emptied_url, definitions_look_ms=50, idle_look_ms=100)
    async with engine(valkey_server.url, given) as opened:
        yield opened


@pytest.fixture
def pipelines(eng: Engine) -> Pipelines:
    assert eng.archive is not None
    operations = Operations(
        eng.store, eng.definitions, eng.transactions, eng.archive, OperatorEvents(eng.store, eng.archive.database)
    )
    return Pipelines(eng.store, eng.definitions, eng.archive, operations)
