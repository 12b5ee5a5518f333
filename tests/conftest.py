"""Servers and stores for the tests; the invariants are checked after every test that touched a store."""

import os
from collections.abc import AsyncIterator, Generator, Iterator

import pytest
from servers import Cluster, Server, Unavailable, cluster, redis7, valkey

from datp.clock import HeldClock
from datp.hotstore.invariants import broken_invariants
from datp.hotstore.store import Store
from datp.settings import Settings

pytest_plugins = ("on_databases",)
NO_SKIP = os.environ.get("DATP_TEST_NO_SKIP") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where nothing may be skipped, a skip is a failure: a claim that nobody looked at."""
    report = yield
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and DATP_TEST_NO_SKIP=1: {report.longrepr}"
    return report


def _started(start: object) -> Server | Cluster:
    try:
        return start()  # type: ignore[operator,no-any-return]
    except Unavailable as error:
        if NO_SKIP:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Server | Cluster]:
    server = _started(valkey)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis7_server() -> Iterator[Server | Cluster]:
    server = _started(redis7)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def cluster_server() -> Iterator[Server | Cluster]:
    server = _started(cluster)
    yield server
    server.stop()


@pytest.fixture
def settings() -> Settings:
    return Settings(partitions=2)


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
async def store(
    request: pytest.FixtureRequest, valkey_server: Server, settings: Settings, clock: HeldClock
) -> AsyncIterator[Store]:
    """An empty store with two partitions and a held clock, which the test leaves in order (unless it `corrupts` it)."""
    valkey_server.flush()
    opened = Store(valkey_server.url, settings, clock)
    await opened.open(create=True, held=True)
    try:
        yield opened
        if request.node.get_closest_marker("corrupts") is None:
            assert not await broken_invariants(opened)
    finally:
        await opened.close()
