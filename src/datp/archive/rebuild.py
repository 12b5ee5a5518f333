"""The rebuild: an empty store is filled from SQL, and what was live goes on.

First the epoch is raised in SQL, so that whoever still writes for the store's former life is refused; then everything
is put in; the name by which nodes know the store comes last. A rebuild that was broken off is begun again: what is
there already is left alone.
"""

import msgspec

from datp.archive.database import FIRST, Database
from datp.archive.publish import settle
from datp.archive.reconciler import ask_for_branches, awaited
from datp.archive.record import ArchivedState
from datp.archive.restore import adopt
from datp.hotstore.store import SCHEMA, Store
from datp.model.status import Phase

PAGE = 500


class Rebuilt(msgspec.Struct, rename="camel"):
    """What was put into the store."""

    store_id: str = ""
    epoch: int = 0
    live: int = 0
    """Transactions that go on."""
    owed: int = 0
    """Ends that are still to be told by webhook."""
    external_ids: int = 0
    """Of transactions that ended so recently that they are not free yet."""


async def rebuild(store: Store, database: Database, *, held: bool = False) -> Rebuilt:
    """The store holds the definitions, and everything that SQL knows to be live.

    Raises StoreLost when the store is in use, DatabaseError.
    """
    await store.check_empty()
    await database.open()
    rebuilt = Rebuilt(epoch=await database.raise_epoch(), store_id=database.store_id)
    identity = f"{database.store_id}/{database.epoch}/{database.partitions}/{SCHEMA}"
    await store.open_to_rebuild(identity, held=held)
    await settle(store, database)
    joining = await _put_in_live(store, database, rebuilt)
    for parent in joining:
        await ask_for_branches(store, database, parent)
    await _put_in_owed(store, database, rebuilt)
    await _put_in_external_ids(store, database, rebuilt)
    await store.finish_rebuilding(held=held)
    return rebuilt


async def _put_in_live(store: Store, database: Database, rebuilt: Rebuilt) -> list[ArchivedState]:
    """What was live is; returns those that wait for branches."""
    joining: list[ArchivedState] = []
    after = FIRST
    while True:
        page = await database.live_states(after, PAGE)
        states = await awaited(database, page)
        if states:
            results = await adopt(store, states)
            rebuilt.live += sum(result.code == "OK" for result in results)
            joining += [state for state in states if state.phase == Phase.JOINING]
        if len(page) < PAGE:
            return joining
        after = page[-1].tx_id


async def _put_in_owed(store: Store, database: Database, rebuilt: Rebuilt) -> None:
    after = FIRST
    while True:
        page = await database.owed_replies(after, PAGE)
        if page:
            results = await adopt(store, page)
            rebuilt.owed += sum(result.code == "OK" for result in results)
        if len(page) < PAGE:
            return
        after = page[-1].tx_id


async def _put_in_external_ids(store: Store, database: Database, rebuilt: Rebuilt) -> None:
    """The externalIds of what ended lately stay taken until their period is over."""
    now_ms = store.clock.now_ms()
    period_ms = store.settings.external_id_period_ms
    after: tuple[int, str] | None = None
    while True:
        page = await database.recent_external_ids(now_ms - period_ms, after, PAGE)
        if page:
            async with store.turn() as turn:
                turn.keep_external_id(
                    [
                        (tx_id, owner, external_id, request_hash, max(1, ended_at + period_ms - now_ms))
                        for owner, external_id, tx_id, request_hash, ended_at in page
                    ]
                )
            rebuilt.external_ids += len(page)
        if len(page) < PAGE:
            return
        after = (page[-1][4], page[-1][2])
