"""Migrations: the tables come to be, and change, by numbered SQL files that go up and down.

`migrations/<dialect>/0001_<word>.up.sql` and `.down.sql`. What was applied stands in datp_schema. Only one migrates at
a time, and all of it is one transaction; but not on MariaDB, which commits at every CREATE: there a migration that
fails half-way must be finished by hand, and the sentence says at which statement it stopped.
"""

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from datp.archive.drivers import Connection, Driver
from datp.archive.queries import Dialect, queries
from datp.errors import DatabaseRefused, DatabaseUnreachable

_MIGRATIONS: Final = files("datp.archive") / "migrations"
_NAME = re.compile(r"(\d{4})_([a-z_]+)\.up\.sql")
_STATEMENT_END = re.compile(r";\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Migration:
    """A step from one schema to the next, and back."""

    version: int
    name: str
    up: str
    down: str


@dataclass(frozen=True, kw_only=True)
class Applied:
    """A migration that a database has, or could have."""

    version: int
    name: str
    applied_at: int | None
    """None: it is still to be applied."""
    is_known: bool
    """To this version of DATP."""


@cache
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """Every migration, the first one first."""
    found = []
    folder = _MIGRATIONS / dialect
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if name := _NAME.fullmatch(path.name):
            down = folder / f"{name[1]}_{name[2]}.down.sql"
            found.append(Migration(version=int(name[1]), name=name[2], up=path.read_text(), down=down.read_text()))
    versions = [one.version for one in found]
    assert versions == sorted(set(versions)), f"two migrations for {dialect} have one number"
    return tuple(found)


def newest_version(dialect: Dialect) -> int:
    """The schema that this version of DATP wants."""
    return migrations(dialect)[-1].version


def statements(text: str) -> list[str]:
    """The statements of a migration: each ends with a semicolon at the end of a line."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return [one.strip() for one in _STATEMENT_END.split("\n".join(lines)) if one.strip()]


async def up(driver: Driver) -> list[Migration]:
    """The database has every migration; returns those that it didn't have. Raises DatabaseError."""
    async with _alone(driver) as connection:
        await connection.run(queries(driver.dialect)["create_schema"])
        applied = await _applied_versions(driver, connection)
        _check_known(driver.dialect, applied)
        missing = [one for one in migrations(driver.dialect) if one.version not in applied]
        for migration in missing:
            await _execute(connection, migration, migration.up)
            await connection.run(
                queries(driver.dialect)["insert_schema"],
                version=migration.version,
                name=migration.name,
                applied_at=time.time_ns() // 1_000_000,
            )
    return missing


async def down(driver: Driver, to_version: int) -> list[Migration]:
    """The database has no migration after this one; returns those that were taken back. Raises DatabaseError."""
    async with _alone(driver) as connection:
        await connection.run(queries(driver.dialect)["create_schema"])
        applied = await _applied_versions(driver, connection)
        _check_known(driver.dialect, applied)
        surplus = [one for one in migrations(driver.dialect)[::-1] if to_version < one.version in applied]
        for migration in surplus:
            await _execute(connection, migration, migration.down)
            await connection.run(queries(driver.dialect)["delete_schema"], version=migration.version)
    return surplus


async def status(driver: Driver) -> list[Applied]:
    """Every migration that the database has, or that we know. Raises DatabaseError."""
    async with driver.reading() as connection:
        rows = {}
        if await connection.rows(queries(driver.dialect)["has_schema"]):
            rows = {row[0]: row for row in await connection.rows(queries(driver.dialect)["list_schema"])}
    known = {one.version: one.name for one in migrations(driver.dialect)}
    return [
        Applied(
            version=version,
            name=known[version] if version in known else rows[version][1],
            applied_at=rows[version][2] if version in rows else None,
            is_known=version in known,
        )
        for version in sorted(known.keys() | rows.keys())
    ]


async def check(driver: Driver) -> None:
    """The database has the schema that we know; raises DatabaseRefused."""
    found = await status(driver)
    _check_known(driver.dialect, {one.version for one in found if one.applied_at is not None})
    missing = [one for one in found if one.applied_at is None]
    if len(missing) == len(found):
        raise DatabaseRefused("The database has no tables of DATP yet; make them with: datp migrate up")
    if missing:
        raise DatabaseRefused(
            f"The database lacks migration {missing[0].version} ({missing[0].name}); apply it with: datp migrate up"
        )


@asynccontextmanager
async def _alone(driver: Driver) -> AsyncIterator[Connection]:
    """A transaction in which nobody else migrates."""
    known = queries(driver.dialect)
    async with driver.writing() as connection:
        if (await connection.rows(known["lock_schema"]))[0][0] != 1:
            raise DatabaseUnreachable("Somebody else is migrating this database, for a minute now; try again later")
        yield connection
        if "unlock_schema" in known:
            await connection.rows(known["unlock_schema"])


async def _applied_versions(driver: Driver, connection: Connection) -> set[int]:
    return {row[0] for row in await connection.rows(queries(driver.dialect)["list_schema"])}


def _check_known(dialect: Dialect, applied: set[int]) -> None:
    unknown = applied - {one.version for one in migrations(dialect)}
    if unknown:
        raise DatabaseRefused(
            f"The database has migration {max(unknown)}, which this version of DATP doesn't know (it knows"
            f" {newest_version(dialect)}): use the newer version of DATP, or take it back with that: datp migrate down"
        )


async def _execute(connection: Connection, migration: Migration, text: str) -> None:
    every = statements(text)
    for place, statement in enumerate(every, 1):
        try:
            await connection.execute(statement)
        except DatabaseRefused as error:
            raise DatabaseRefused(
                f"Migration {migration.version} ({migration.name}) stopped at statement {place} of {len(every)}:"
                f" {error}"
            ) from None
