"""Tests of the scripts drive a store by hand."""

import pytest
from driver import Driver
from servers import Server

from datp.clock import HeldClock
from datp.hotstore.store import Store


@pytest.fixture
def hot(store: Store, clock: HeldClock, valkey_server: Server) -> Driver:
    return Driver(store, clock, valkey_server.client())
