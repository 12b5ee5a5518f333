"""`datp doctor`: what of this deployment is not as it should be, why that matters, and what helps."""

from typing import TYPE_CHECKING, Annotated

import typer

from datp.cli.options import AsJson, DatabaseUrl, StoreUrl
from datp.cli.output import say, show_json, table
from datp.errors import DatpError

if TYPE_CHECKING:
    from datp.doctor.examination import Diagnosis
    from datp.settings import Settings


def doctor(
    invariants: Annotated[
        bool, typer.Option("--invariants", help="Look at every transaction too, as datp invariants does.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Leave out what is fine.")] = False,
    store: StoreUrl = "",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Look at the store, the archive, the nodes and the queues; exit code 1 if something is in trouble.

    It changes nothing. Give it the settings that the nodes have: DATP_STORE_URL, DATP_DATABASE_URL and the others.
    """
    import asyncio

    from datp.cli.connect import find_database_url, find_url
    from datp.settings import load

    settings = load()
    diagnosis = asyncio.run(
        _examine(find_url(store, settings), database or find_database_url(store, settings), settings, invariants)
    )
    if as_json:
        show_json({"findings": diagnosis.findings, "levels": diagnosis.levels, "troubles": diagnosis.troubles})
    else:
        _show(diagnosis, quiet)
    if diagnosis.troubles:
        count = diagnosis.troubles
        raise DatpError("1 thing is in trouble" if count == 1 else f"{count} things are in trouble")


async def _examine(store_url: str, database_url: str, settings: "Settings", invariants: bool) -> "Diagnosis":
    from datp.archive.database import Database
    from datp.doctor.examination import examine
    from datp.hotstore.store import Store

    store = Store(store_url, settings)
    database = Database(database_url, settings) if database_url else None
    try:
        return await examine(store, database, invariants=invariants)
    finally:
        if database is not None:
            await database.close()
        await store.close()


def _show(diagnosis: "Diagnosis", quiet: bool) -> None:
    order = ["trouble", "advice", "fine"]
    findings = [one for one in diagnosis.findings if not (quiet and one.level == "fine")]
    for one in sorted(findings, key=lambda one: order.index(one.level)):
        say(f"{one.level:<8}{one.about}: {one.what}")
        if one.why:
            say(f"        because {one.why}")
            say(f"        change  {one.change}")
    if diagnosis.levels:
        say()
        table(("durability", "what it means here"), diagnosis.levels.items(), empty="")
