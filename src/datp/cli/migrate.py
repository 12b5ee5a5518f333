"""`datp migrate up | down | status`: the tables of the archive."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from datp.cli.options import AsJson, DatabaseUrl
from datp.cli.output import clock_time, say, show_json, table
from datp.errors import BadRequest, DatabaseRefused

if TYPE_CHECKING:
    from datp.archive.drivers import Driver

T = TypeVar("T")

app = typer.Typer(help="Make, change and remove the tables of the archive.")


@app.command()
def up(database: DatabaseUrl = "", as_json: AsJson = False) -> None:
    """Apply what the database lacks; one that has everything is left as it is."""
    from datp.archive import migrate

    applied = _with_driver(database, migrate.up)
    if as_json:
        show_json([{"version": one.version, "name": one.name} for one in applied])
        return
    for one in applied:
        say(f"Applied {one.version} ({one.name})")
    if not applied:
        say("The database had every migration already")


@app.command()
def down(
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="VERSION", min=0, help="The last one that stays; 0: none.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="What these tables hold may be lost.")] = False,
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Take migrations back, the last one first. What their tables hold is lost."""
    from datp.archive import migrate

    if to is None:
        raise BadRequest("Say with --to which migration is the last one that stays; see: datp migrate status")
    surplus = [one for one in _with_driver(database, migrate.status) if one.version > to and one.applied_at is not None]
    if surplus and not yes:
        names = ", ".join(f"{one.version} ({one.name})" for one in surplus)
        raise BadRequest(f"What the tables of {names} hold would be lost. If that is meant, add --yes")
    taken_back = _with_driver(database, lambda driver: migrate.down(driver, to))
    if as_json:
        show_json([{"version": one.version, "name": one.name} for one in taken_back])
        return
    for one in taken_back:
        say(f"Took back {one.version} ({one.name})")
    if not taken_back:
        say("There was nothing to take back")


@app.command()
def status(database: DatabaseUrl = "", as_json: AsJson = False) -> None:
    """List the migrations; exit code 5 if the database lacks one, or has one that isn't known."""
    from datp.archive import migrate

    found = _with_driver(database, migrate.status)
    if as_json:
        show_json(
            [
                {"version": one.version, "name": one.name, "appliedAt": one.applied_at, "isKnown": one.is_known}
                for one in found
            ]
        )
    else:
        rows = [
            (
                one.version,
                one.name,
                clock_time(one.applied_at) if one.applied_at is not None else "not yet",
                "" if one.is_known else "unknown to this version of DATP",
            )
            for one in found
        ]
        table(("version", "name", "applied", ""), rows, empty="There are no migrations")
    if any(not one.is_known for one in found):
        raise DatabaseRefused("The database was changed by a newer version of DATP; use that one")
    if any(one.applied_at is None for one in found):
        raise DatabaseRefused("The database lacks a migration; apply it with: datp migrate up")


def _with_driver(given: str, work: "Callable[[Driver], Coroutine[Any, Any, T]]") -> T:
    """What the work returns, done with the database that is meant."""
    import asyncio

    from datp.archive.drivers import driver_for
    from datp.settings import load

    settings = load()
    url = given or settings.database_url
    if not url:
        raise BadRequest("No database is known: name one with --database-url or DATP_DATABASE_URL")

    async def with_driver() -> T:
        driver = driver_for(url, settings)
        try:
            return await work(driver)
        finally:
            await driver.close()

    return asyncio.run(with_driver())
