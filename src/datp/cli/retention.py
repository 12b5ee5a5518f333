"""`datp retention`: how long finished transactions are kept, what is old enough to go, and what went."""

from typing import TYPE_CHECKING, Annotated

import typer

from datp.cli.options import AsJson, StoreUrl
from datp.cli.output import show_json, span, table
from datp.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from datp.archive.archive import Archive
    from datp.archive.retention import Kept, Retention
    from datp.cli.connect import Session
    from datp.settings import Settings

app = typer.Typer(
    help="See how long finished transactions are kept, and delete what is old enough.", no_args_is_help=True
)

Days = Annotated[
    int | None,
    typer.Option(
        "--days",
        metavar="N",
        min=1,
        help="For types whose pipeline says nothing, instead of DATP_RETENTION_DAYS.",
        show_default=False,
    ),
]


@app.command()
def show(days: Days = None, store: StoreUrl = "", as_json: AsJson = False) -> None:
    """Say how long each type is kept, and how many are old enough: what `datp retention run` would delete."""
    from datp.cli.connect import with_store

    async def work(session: "Session") -> list[tuple["Kept", int]]:
        from datp.archive.retention import kept_types

        database = _archive(session).database
        settings = _settings(session, days)
        kept = await kept_types(database, await session.definitions.retention(), settings)
        now_ms = session.store.clock.now_ms()
        return [(one, await database.count_final(one.before_ms(now_ms), one.type) if one.for_ms else 0) for one in kept]

    found = with_store(store, work)
    if as_json:
        show_json(
            [
                {"type": one.type, "keptForMs": one.for_ms or None, "byPipeline": one.is_own, "oldEnough": count}
                for one, count in found
            ]
        )
        return
    table(
        ("type", "kept for", "says", "old enough"),
        ((one.type, span(one.for_ms) if one.for_ms else "ever", _who_says(one), count) for one, count in found),
        empty="No transactions are archived",
    )


@app.command()
def run(days: Days = None, store: StoreUrl = "", as_json: AsJson = False) -> None:
    """Delete what is old enough now, in small batches; nodes with the role archive do it by themselves."""
    from datp.cli.connect import with_store

    async def work(session: "Session") -> dict[str, int]:
        return await _retention(session, days).delete()

    deleted = with_store(store, work)
    if as_json:
        show_json(deleted)
    else:
        rows = sorted(deleted.items())
        table(("type", "deleted"), rows, empty="Nothing is old enough")


@app.command()
def counts(
    from_: Annotated[str, typer.Option("--from", metavar="DAY", help="The first day (UTC), such as 2026-11-19.")] = "",
    until: Annotated[str, typer.Option("--until", metavar="DAY", help="The last day.")] = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Print how many transactions, deleted since, ended on each day."""
    from datp.archive.database import RolledUp
    from datp.cli.connect import with_store

    first, last = _day(from_, "--from") or "0000-01-01", _day(until, "--until") or "9999-12-31"

    async def work(session: "Session") -> list[RolledUp]:
        return await _archive(session).database.rollup(first, last)

    found = with_store(store, work)
    if as_json:
        show_json([one._asdict() for one in found])
    else:
        table(("day", "owner", "type", "status", "transactions"), found, empty="Nothing was deleted")


def _archive(session: "Session") -> "Archive":
    if session.archive is None:
        raise NotFound("No archive is known here: name one with DATP_DATABASE_URL")
    return session.archive


def _settings(session: "Session", days: int | None) -> "Settings":
    from dataclasses import replace

    settings = session.store.settings
    return settings if days is None else replace(settings, retention_days=days)


def _retention(session: "Session", days: int | None) -> "Retention":
    from datp.archive.retention import Retention

    settings = _settings(session, days)
    return Retention(_archive(session).database, session.definitions.retention, settings, session.store.clock)


def _who_says(kept: "Kept") -> str:
    return "its pipeline" if kept.is_own else "retention_days"


def _day(given: str, option: str) -> str:
    from datetime import date

    if not given:
        return ""
    try:
        return date.fromisoformat(given).isoformat()
    except ValueError:
        raise BadRequest(f"{option} {given!r} is no day, such as 2026-11-19", field=option) from None
