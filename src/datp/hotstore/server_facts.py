"""What a store's servers say of themselves: how they keep data, how much room they have, what time it is."""

import time
from typing import Any, Final

import msgspec

from datp.errors import StoreError
from datp.hotstore.keys import key
from datp.hotstore.store import Store

SECTIONS: Final = ("server", "persistence", "memory", "replication")
CONFIGURATION: Final = ("appendfsync", "save", "maxmemory-policy", "min-replicas-to-write")


class ServerFacts(msgspec.Struct):
    """One server, which serves some partitions."""

    name: str
    """`the store`, or which partitions of it."""
    info: dict[str, Any]
    config: dict[str, str]
    """Empty where the server doesn't tell: hosted ones often don't."""
    ahead_ms: float
    """How far its clock is ahead of this machine's, as far as that can be known."""
    archive_waits_ms: float = 0
    """For how long the first state that is due to be archived has waited for an archiver."""


async def server_facts(store: Store) -> list[ServerFacts]:
    """Every server of the store. Raises StoreError."""
    by_server = store.connection.partitions_by_server
    return [await _facts(store, partitions, is_alone=len(by_server) == 1) for partitions in by_server]


async def _facts(store: Store, partitions: list[int], *, is_alone: bool) -> ServerFacts:
    first, connection = partitions[0], store.connection
    info: dict[str, Any] = {}
    for section in SECTIONS:
        info |= await connection.info(section, first)
    name = "the store" if is_alone else f"the server of partitions {', '.join(map(str, partitions))}"
    try:
        config = await connection.configuration(CONFIGURATION, first)
    except StoreError:
        config = {}
    before_ms = time.time() * 1000
    [(seconds, microseconds)] = await connection.read(first, [("TIME",)])
    after_ms = time.time() * 1000
    now_ms = int(seconds) * 1000 + int(microseconds) / 1000
    ahead_ms = 0.0 if before_ms <= now_ms <= after_ms else now_ms - (before_ms if now_ms < before_ms else after_ms)
    waits_ms = 0.0
    for partition in partitions:
        [first_due] = await connection.read(
            partition, [("ZRANGE", key("to_archive", store.tags[partition]), 0, 0, "WITHSCORES")]
        )
        if first_due:
            waits_ms = max(waits_ms, now_ms - float(first_due[1]))
    return ServerFacts(name, info, config, ahead_ms, waits_ms)
