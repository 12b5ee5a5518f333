"""What the archive's database keeps, and whether it is the right one."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from datp.archive.database import KnownStore
from datp.archive.migrate import Applied
from datp.doctor.finding import Finding, advice, fine, trouble
from datp.doctor.servers import seconds
from datp.settings import Settings

ABOUT: Final = "the archive"


class DatabaseFacts(msgspec.Struct):
    """A database that answers."""

    described: dict[str, Any]
    """Server, version, and what makes a commit durable."""
    migrations: list[Applied]
    known: KnownStore | None
    """The store that it is the archive of."""
    ahead_ms: float


def no_database() -> Finding:
    return advice(
        ABOUT,
        "there is none",
        "what has ended is forgotten, sleepers never leave memory, and durability journal is refused",
        "name a database with DATP_DATABASE_URL, make its tables (datp migrate up), and give a node the role archive",
    )


def unreachable(error: str) -> Finding:
    return trouble(
        ABOUT,
        error,
        "what ends, sleeps or waits long stays in memory until it is back; starts of durability journal are refused",
        "see whether the server runs, and whether DATP_DATABASE_URL is right",
    )


def check_database(facts: DatabaseFacts, store: KnownStore | None, settings: Settings) -> Iterator[Finding]:
    """Everything about the database; `store`: the store that is looked at, if it answers."""
    yield _commits(facts.described)
    yield _schema(facts.migrations)
    if store is not None:
        yield _identity(facts.known, store)
    if abs(facts.ahead_ms) > settings.clock_skew_max_ms:
        yield advice(
            ABOUT,
            f"its server's clock is {seconds(facts.ahead_ms)} of this machine's",
            "times in the logs of both don't match",
            "let both follow a time server (NTP)",
        )


def is_durable(described: dict[str, Any]) -> bool:
    """Whether what was committed survives a crash of the machine."""
    match described["server"]:
        case "sqlite":
            return int(described["synchronous"]) >= 2
        case "postgresql":
            return bool(described["synchronous_commit"] != "off" and described["fsync"] == "on")
        case _:
            return int(described["innodb_flush_log_at_trx_commit"]) == 1


def _commits(described: dict[str, Any]) -> Finding:
    said = ", ".join(f"{name} {value}" for name, value in list(described.items())[2:] if name != "schema")
    what = f"it is {_NAMES[described['server']]} {described['version']}; {said}"
    if is_durable(described):
        return fine(ABOUT, f"{what}: what is committed survives a crash of the machine")
    return trouble(
        ABOUT,
        what,
        "what was committed, and so acknowledged, may be lost when the machine crashes",
        _DURABLE[described["server"]],
    )


_NAMES: Final = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mariadb": "MariaDB"}
_DURABLE: Final = {
    "sqlite": "nothing of ours sets this; see who changed it",
    "postgresql": "fsync = on and synchronous_commit = on (or more) in postgresql.conf",
    "mariadb": "innodb_flush_log_at_trx_commit = 1 and sync_binlog = 1 in its configuration",
}


def _schema(migrations: list[Applied]) -> Finding:
    unknown = [one for one in migrations if not one.is_known]
    missing = [one for one in migrations if one.applied_at is None]
    if unknown:
        return trouble(
            ABOUT,
            f"it has migration {unknown[-1].version} ({unknown[-1].name}), which this version of DATP doesn't know",
            "nodes of this version refuse to start",
            "use the newer version of DATP, or take the migration back with that: datp migrate down",
        )
    if missing:
        return trouble(
            ABOUT,
            f"it lacks migration {missing[0].version} ({missing[0].name})",
            "nodes refuse to start",
            "datp migrate up",
        )
    return fine(ABOUT, f"its tables are at migration {migrations[-1].version}")


def _identity(known: KnownStore | None, store: KnownStore) -> Finding:
    if known is None:
        return advice(
            ABOUT,
            "no store has been archived there yet",
            "the first node with the role archive makes it this store's",
            "start one: datp node --roles archive",
        )
    if known.store_id != store.store_id:
        return trouble(
            ABOUT,
            f"it is the archive of store {known.store_id}, not of {store.store_id}",
            "nodes refuse to run with both",
            "name the right database, or the right store; if that store was lost: datp rebuild over an empty one",
        )
    if known.epoch > store.epoch:
        return trouble(
            ABOUT,
            f"it is at epoch {known.epoch}, but the store at {store.epoch}",
            "a rebuild made a new store; what still runs on this one is refused by the archive",
            "stop what runs on this one, and use the new one",
        )
    return fine(ABOUT, f"it is this store's, at epoch {store.epoch}")
