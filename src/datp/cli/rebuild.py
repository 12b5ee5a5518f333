"""`datp rebuild`: a store that was lost is made again from the archive."""

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from datp.cli.options import AsJson, DatabaseUrl, StoreUrl
from datp.cli.output import note, say, show_json
from datp.errors import BadRequest, DatabaseRefused

if TYPE_CHECKING:
    from datp.archive.database import KnownStore
    from datp.archive.rebuild import Rebuilt
    from datp.settings import Settings


TELL_EVERY_S: Final = 5.0


def rebuild(
    yes: Annotated[
        bool, typer.Option("--yes", help="The store is lost; whoever still runs on it is refused from now on.")
    ] = False,
    store: StoreUrl = "",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Fill an empty Valkey or Redis from the archive, so that everything that was live goes on.

    First stop the nodes, and start an empty server. Without --yes it only says what would be done. A rebuild that was
    broken off is run again.
    """
    import asyncio

    from datp.cli.connect import find_database_url, find_url
    from datp.settings import load

    settings = load()
    store_url = find_url(store, settings)
    database_url = database or find_database_url(store, settings)
    if not database_url:
        raise BadRequest("A store is rebuilt from its archive: name it with --database-url or DATP_DATABASE_URL")
    asyncio.run(_look_and_rebuild(store_url, database_url, settings, is_meant=yes, as_json=as_json))


async def _look_and_rebuild(
    store_url: str, database_url: str, settings: "Settings", *, is_meant: bool, as_json: bool
) -> None:
    """It is rebuilt, or would be."""
    from datp.archive.database import Database
    from datp.archive.rebuild import rebuild as rebuild_store
    from datp.hotstore.store import Store, shown_url

    store, database = Store(store_url, settings), Database(database_url, settings)
    try:
        await store.check_empty()
        await database.open()
        known = await database.known_store()
        if known is None:
            raise DatabaseRefused(
                "No store is archived in this database, so there is none to be rebuilt from it. For a new store:"
                " datp store create"
            )
        if not is_meant:
            raise BadRequest(
                f"The store at {shown_url(store_url)} would become store {known.store_id}, with what the archive has"
                f" of it, and nodes that still run on a former one would be refused. If that one is lost, add --yes"
            )
        began = time.monotonic()
        rebuilt = await rebuild_store(store, database, told=Teller())
        _show(rebuilt, known, shown_url(store_url), time.monotonic() - began, as_json)
    finally:
        await database.close()
        await store.close()


def _show(rebuilt: "Rebuilt", known: "KnownStore", url: str, seconds: float, as_json: bool) -> None:
    if as_json:
        show_json(rebuilt)
        return
    say(f"Store {rebuilt.store_id} is at {url} now, with {known.partitions} partitions; its epoch is {rebuilt.epoch}")
    say(f"  {rebuilt.live} transactions go on, of which {rebuilt.asleep} sleep or wait in the archive")
    say(f"  {rebuilt.owed} webhooks of ended ones are still to be delivered")
    say(f"  {rebuilt.external_ids} externalIds of ended ones stay taken")
    say(f"  {rebuilt.versions} versions of pipelines were published")
    say(f"It took {seconds:.1f} s. Start the nodes now, then look: datp doctor")


class Teller:
    """Says now and then how far it is."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()

    def __call__(self, what: str, count: int) -> None:
        if time.monotonic() - self._told_at >= TELL_EVERY_S:
            self._told_at = time.monotonic()
            note(f"{count} {what} so far")
