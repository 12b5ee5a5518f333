"""The engine on a real clock, on an empty Valkey, with short intervals; and a node that tells clients."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from servers import Server
from worker.support import Engine, engine

from datp.archive import migrate
from datp.archive.drivers import driver_for
from datp.model.signature import new_key
from datp.settings import Settings
from datp.webhooks.role import webhook_services
from datp.webhooks.sender import Sender
from datp.worker.node import Node

KEY = new_key("v1", bytes(range(32)))

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
    archive_interval_ms=20,
    archive_delay_ms=50,
    outbound_networks="127.0.0.0/8,::1/128",
    webhook_keys=KEY,
    webhook_timeout_ms=500,
    webhook_claim_ms=1_500,
    webhook_retries="20ms,30ms,40ms,50ms",
    webhook_interval_ms=50,
    webhook_fail_limit=1_000,
)
"""Short intervals, so that a test takes no longer than what it is about."""

Starts = Callable[..., Awaitable[Node]]


@pytest.fixture
async def eng(valkey_server: Server) -> AsyncIterator[Engine]:
    valkey_server.flush()
    async with engine(valkey_server.url, QUICK) as opened:
        yield opened


@pytest.fixture
async def eng_with_sql(valkey_server: Server, tmp_path: Path) -> AsyncIterator[Engine]:
    """The same with an archive, which is where deliveries move, and keys are."""
    valkey_server.flush()
    settings = replace(QUICK, database_url=f"sqlite:///{tmp_path}/archive.sqlite", webhook_keys="")
    driver = driver_for(settings.database_url, settings)
    await migrate.up(driver)
    await driver.close()
    async with engine(valkey_server.url, settings) as opened:
        yield opened


def role_services(node: Node) -> list[Any]:
    if "webhooks" not in node.roles:
        return []
    return list(
        webhook_services(node.store, node.settings, node.events, node.archive.database if node.archive else None)
    )


async def teller(eng: Engine, roles: str = "worker,wakeup,webhooks", **settings: Any) -> Node:
    """A node that runs steps, and tells clients."""
    node = Node(eng.with_settings(roles=roles, **settings), eng.registry, url=eng.store.url, stations=role_services)
    await node.start()
    eng.nodes.append(node)
    return node


def sender_of(node: Node) -> Sender:
    [sender] = [service for service in node._services if isinstance(service, Sender)]
    return sender
