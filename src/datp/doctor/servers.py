"""What the store's servers keep, and what is lost with them."""

import re
from collections.abc import Iterator
from typing import Any, Final

from datp.doctor.finding import Finding, advice, fine, trouble
from datp.hotstore.server_facts import ServerFacts
from datp.settings import Settings

NEEDED: Final = {"redis": (7, 0), "valkey": (7, 2)}
MEMORY_TIGHT: Final = 0.85
"""Of the budget; from here on sleepers leave memory at once."""

ARCHIVE_WAITS_MAX_MS: Final = 60_000


def check_server(facts: ServerFacts, settings: Settings) -> Iterator[Finding]:
    """Everything about one server of the store."""
    yield _version(facts)
    yield from _role(facts)
    yield _persistence(facts)
    yield from _failures(facts)
    yield from _memory(facts, settings)
    yield _replicas(facts)
    yield from _clock(facts, settings)


def loss_of(facts: ServerFacts) -> str:
    """What a restart of the server may take back of what was told; '' for nothing."""
    if not facts.info.get("aof_enabled"):
        return "everything since its last snapshot" if facts.config.get("save") else "everything"
    fsync = facts.config.get("appendfsync", "everysec")
    return {"always": "", "everysec": "the last second"}.get(fsync, "some 30 seconds")


def _version(facts: ServerFacts) -> Finding:
    kind = "valkey" if facts.info.get("server_name") == "valkey" else "redis"
    version = str(facts.info.get("valkey_version" if kind == "valkey" else "redis_version", "0"))
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < NEEDED[kind]:
        needed = ".".join(map(str, NEEDED[kind]))
        return trouble(
            facts.name,
            f"it is {kind.capitalize()} {version}",
            "the scripts use what older servers don't have",
            f"use Valkey, or Redis {needed} or newer",
        )
    return fine(facts.name, f"it is {kind.capitalize()} {version}")


def _role(facts: ServerFacts) -> Iterator[Finding]:
    if facts.info.get("role") != "master":
        yield trouble(
            facts.name,
            f"it is a replica ({facts.info.get('role')})",
            "a replica refuses every write",
            "name the primary in DATP_STORE_URL",
        )


def _persistence(facts: ServerFacts) -> Finding:
    lost = loss_of(facts)
    if not facts.info.get("aof_enabled"):
        return trouble(
            facts.name,
            "its append-only file is off",
            f"a restart of the server takes back {lost} but what SQL has",
            "CONFIG SET appendonly yes, and the same in its configuration file",
        )
    if "appendfsync" not in facts.config:
        return advice(
            facts.name,
            "its append-only file is on; it doesn't tell how often it is synced to the disk",
            "so what a crash of the machine takes back is not known",
            "look up appendfsync: everysec or always",
        )
    if facts.config["appendfsync"] == "no":
        return trouble(
            facts.name,
            "its append-only file is on, but it is synced only when the system likes (appendfsync no)",
            f"a crash of the machine takes back {lost}",
            "CONFIG SET appendfsync everysec, and the same in its configuration file",
        )
    what = f"its append-only file is on, appendfsync {facts.config['appendfsync']}"
    return fine(facts.name, f"{what}: a crash of the machine takes back {lost or 'nothing'}")


def _failures(facts: ServerFacts) -> Iterator[Finding]:
    for field, what in {
        "aof_last_write_status": "it could not write its append-only file",
        "aof_last_bgrewrite_status": "it could not rewrite its append-only file",
        "rdb_last_bgsave_status": "it could not write its last snapshot",
    }.items():
        if facts.info.get(field, "ok") != "ok":
            yield trouble(
                facts.name,
                what,
                "what it holds is not on the disk; and with a snapshot that failed it may refuse every write",
                "make room on its disk, and look at its log",
            )


def _memory(facts: ServerFacts, settings: Settings) -> Iterator[Finding]:
    policy = _policy(facts)
    limit = int(facts.info.get("maxmemory", 0))
    budget = settings.memory_budget_mb * 1_000_000 or limit
    used = int(facts.info.get("used_memory", 0))
    if policy != "noeviction" and limit:
        yield trouble(
            facts.name,
            f"it has maxmemory {_megabytes(limit)} and maxmemory-policy {policy}",
            "when its memory is full it throws away transactions",
            "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file",
        )
    if not budget:
        yield advice(
            facts.name,
            f"it has no memory limit; it uses {_megabytes(used)}",
            "when the machine's memory is full, the system ends the server; with a limit, sleepers leave memory sooner,"
            " and then starts are refused, before that happens",
            "CONFIG SET maxmemory, to some 3/4 of what the machine has",
        )
    elif used > budget * MEMORY_TIGHT:
        yield trouble(
            facts.name,
            f"it uses {_megabytes(used)} of {_megabytes(budget)}",
            "sleepers leave memory at once, and soon new starts are refused",
            "give it more memory, or find what fills it: datp queues",
        )
    else:
        yield fine(facts.name, f"it uses {_megabytes(used)} of {_megabytes(budget)}, and evicts nothing by itself")


def _replicas(facts: ServerFacts) -> Finding:
    replicas = int(facts.info.get("connected_slaves", 0))
    if replicas:
        least = int(facts.config.get("min-replicas-to-write", "0"))
        return fine(facts.name, f"it has {replicas} replicas, and wants {least} of them to take a write")
    return advice(
        facts.name,
        "it has no replica",
        "if its machine is lost, so is everything that SQL doesn't have: see the levels of durability",
        "add a replica and Sentinel or a Cluster; or give pipelines that must not lose anything durability journal",
    )


def _clock(facts: ServerFacts, settings: Settings) -> Iterator[Finding]:
    if abs(facts.ahead_ms) > settings.clock_skew_max_ms:
        yield advice(
            facts.name,
            f"its clock is {seconds(facts.ahead_ms)} of this machine's",
            "the store's clock decides when sleepers wake and deadlines pass; logs of other machines tell other times",
            "let both follow a time server (NTP)",
        )
    else:
        yield fine(facts.name, "its clock agrees with this machine's")


def check_archive_keeps_up(facts: ServerFacts) -> Iterator[Finding]:
    """Whether states wait long to be archived."""
    if facts.archive_waits_ms > ARCHIVE_WAITS_MAX_MS:
        yield trouble(
            facts.name,
            f"states that are due to be archived have waited for {facts.archive_waits_ms / 1000:.0f} s",
            "they fill the store's memory, and the ends of durability journal are not told",
            "see whether the database answers, and whether a node has the role archive; add one if they are busy",
        )


def seconds(ahead_ms: float) -> str:
    return f"{abs(ahead_ms) / 1000:.1f} s {'ahead' if ahead_ms > 0 else 'behind'}"


def _policy(facts: ServerFacts) -> str:
    said: Any = facts.info.get("maxmemory_policy") or facts.config.get("maxmemory-policy") or "noeviction"
    return str(said)


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.0f} MB"
