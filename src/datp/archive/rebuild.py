"""The rebuild: an empty store is filled from SQL, and what was live goes on.

First the epoch is raised in SQL, so that whoever still writes for the store's former life is refused; then everything
is put in; the name by which nodes know the store comes last. A rebuild that was broken off is begun again: what is
there already is left alone. Sleepers and waiters stay in SQL: only their ids are put in, so that the store needs no
more memory than before.
"""

from collections.abc import Callable

import msgspec

from datp.archive.database import FIRST, Database
from datp.archive.publish import settle
from datp.archive.reconciler import ask_for_branches, awaited
from datp.archive.record import ArchivedState
from datp.archive.restore import adopt, evicted
from datp.hotstore.store import SCHEMA, Store
from datp.model.status import Phase

PAGE = 500

Told = Callable[[str, int], None]
"""What is being put in, and how many of it are there so far."""


class Rebuilt(msgspec.Struct, rename="camel"):
    """What was put into the store."""

    store_id: str = ""
    epoch: int = 0
    versions: int = 0
    """Of pipelines."""
    live: int = 0
    """Transactions that go on."""
    asleep: int = 0
    """Of these: sleepers and waiters, which stay in SQL until they are wanted."""
    owed: int = 0
    """Ends that are still to be told by webhook."""
    external_ids: int = 0
    """Of transactions that ended so recently that they are not free yet."""


async def rebuild(store: Store, database: Database, *, told: Told = lambda *_: None, held: bool = False) -> Rebuilt:
    """The store holds the definitions, and everything that SQL knows to be live.

    Raises StoreLost when the store is in use, DatabaseError.
    """
    await store.check_empty()
    await database.open()
    rebuilt = Rebuilt(epoch=await database.raise_epoch(), store_id=database.store_id)
    identity = f"{database.store_id}/{database.epoch}/{database.partitions}/{SCHEMA}"
    await store.open_to_rebuild(identity, held=held)
    rebuilt.versions = await settle(store, database)
    joining = await _put_in_live(store, database, rebuilt, told)
    for parent in joining:
        await ask_for_branches(store, database, parent)
    await _put_in_owed(store, database, rebuilt, told)
    await _put_in_external_ids(store, database, rebuilt, told)
    await store.finish_rebuilding(held=held)
    return rebuilt


async def _put_in_live(store: Store, database: Database, rebuilt: Rebuilt, told: Told) -> list[ArchivedState]:
    """What was live is; returns those that wait for branches."""
    joining: list[ArchivedState] = []
    after = FIRST
    while True:
        page = await database.live_states(after, PAGE)
        states = await awaited(database, page)
        asleep = [state for state in states if _stays_in_sql(state)]
        awake = [state for state in states if not _stays_in_sql(state)]
        if asleep:
            async with store.turn() as turn:
                reply = turn.evict([evicted(state) for state in asleep])
            put_in = sum(result.code == "OK" for result in reply.value)
            rebuilt.live, rebuilt.asleep = rebuilt.live + put_in, rebuilt.asleep + put_in
        if awake:
            results = await adopt(store, awake)
            rebuilt.live += sum(result.code == "OK" for result in results)
            joining += [state for state in awake if state.phase == Phase.JOINING]
        told("live transactions", rebuilt.live)
        if len(page) < PAGE:
            return joining
        after = page[-1].tx_id


def _stays_in_sql(state: ArchivedState) -> bool:
    """A branch's parent may ask for it at any time, and who has a verdict is to end."""
    return state.phase in (Phase.SLEEPING, Phase.WAITING) and not state.parent and not state.fields.get("verdict")


async def _put_in_owed(store: Store, database: Database, rebuilt: Rebuilt, told: Told) -> None:
    after = FIRST
    while True:
        page = await database.owed_replies(after, PAGE)
        if page:
            results = await adopt(store, page)
            rebuilt.owed += sum(result.code == "OK" for result in results)
            told("webhooks that are owed", rebuilt.owed)
        if len(page) < PAGE:
            return
        after = page[-1].tx_id


async def _put_in_external_ids(store: Store, database: Database, rebuilt: Rebuilt, told: Told) -> None:
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
            told("externalIds that stay taken", rebuilt.external_ids)
        if len(page) < PAGE:
            return
        after = (page[-1][4], page[-1][2])
