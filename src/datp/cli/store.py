"""`datp store create`, and `datp invariants`: about the store itself."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from datp.cli.options import AsJson, StoreUrl
from datp.cli.output import say, show_json
from datp.errors import Conflict, DatpError, StoreLost

if TYPE_CHECKING:
    from datp.settings import Settings

app = typer.Typer(help="Make a store.")


@app.callback()
def _store() -> None:
    """Nothing: with it, Typer keeps `create` a command of its own."""


@app.command()
def create(
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", metavar="N", help="They can't be changed later. Default: 8.", show_default=False),
    ] = None,
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Make an empty Valkey or Redis a store; one that is a store already is left as it is."""
    import asyncio

    from datp.cli.connect import find_url
    from datp.settings import load

    settings = load(given={"partitions": partitions})
    identity, is_new = asyncio.run(_create(find_url(store, settings), settings, partitions))
    store_id, epoch, count, schema = identity.split("/")
    if as_json:
        show_json(
            {
                "storeId": store_id,
                "epoch": int(epoch),
                "partitions": int(count),
                "schema": int(schema),
                "isNew": is_new,
            }
        )
    elif is_new:
        say(f"Store {store_id} is there, with {count} partitions. Next: datp group set main, and: datp node")
    else:
        say(f"Store {store_id} was there already, with {count} partitions")


def invariants(store: StoreUrl = "", as_json: AsJson = False) -> None:
    """Check that every transaction is in exactly one place, and nothing is left over; exit code 1 if not."""
    from datp.cli.connect import with_store
    from datp.hotstore.invariants import broken_invariants

    broken = with_store(store, lambda session: broken_invariants(session.store))
    if as_json:
        show_json(broken)
    else:
        for sentence in broken or ["Everything is as it must be"]:
            say(sentence)
    if broken:
        count = len(broken)
        raise DatpError("1 thing is not as it must be" if count == 1 else f"{count} things are not as they must be")


async def _create(url: str, settings: "Settings", wanted: Any) -> tuple[str, bool]:
    """The store's identity, and whether it was made now."""
    from datp.hotstore.store import Store, shown_url

    store = Store(url, settings)
    is_new = False
    try:
        try:
            await store.open()
        except StoreLost:
            await store.open(create=True)
            is_new = True
    finally:
        await store.close()
    if wanted is not None and store.partitions != wanted:
        raise Conflict(
            f"The store at {shown_url(url)} was made with {store.partitions} partitions, and they can't be changed",
            reason="PARTITIONS",
        )
    return store.identity, is_new
