"""States for the tests of the archive."""

from random import Random
from typing import Any, Final

from on_databases import PARTITIONS, STORE_ID

from datp.archive.record import ArchivedState, archived_state
from datp.model.ids import Partition, new_transaction_id
from datp.settings import Settings

__all__ = ["NOW_MS", "PARTITIONS", "STORE_ID", "made", "text_of", "tx_id"]

NOW_MS = 1_800_000_000_000

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


_chance = Random(7)


def tx_id(number: int, partition: int = 0) -> str:
    return new_transaction_id(Partition(partition), NOW_MS + number, number)


def made(
    number: int = 0,
    *,
    version: int = NOW_MS,
    phase: str = "queued",
    status: str = "",
    switches: dict[str, bytes] | None = None,
    join: dict[str, bytes] | None = None,
    is_owed: bool = False,
    **fields: Any,
) -> ArchivedState:
    """A state as the hot store gives it; `fields` are further ones, or others."""
    given: dict[str, Any] = {
        "phase": phase,
        "version": version,
        "sequence": version,
        "started_at": NOW_MS + number,
        "owner": "anna",
        "type": "order",
        "pipeline_version": "v1",
        "group": "main",
        "state": '{"transactionData":{}}',
        **({"status": status} if status else {}),
        **fields,
    }
    encoded = {name: value if isinstance(value, bytes) else str(value).encode() for name, value in given.items()}
    return archived_state(tx_id(number), version, encoded, switches, join, is_owed=is_owed)


def text_of(length: int) -> str:
    """Some that compresses about as well as documents do."""
    words = ("amount", "order", "customer", "true", "2026-11-19", "step", "reference", "null")
    out = ""
    while len(out) < length:
        out += f'{_chance.choice(words)}:"{_chance.getrandbits(48):x}",'
    return out[:length]
