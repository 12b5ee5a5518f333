"""The archive, as callers of the hot store see it: what left memory is read, or brought back when it is touched."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from datp.archive.database import Database
from datp.archive.record import archived_state
from datp.archive.restore import Restorer, Wanted
from datp.errors import Conflict, DatabaseRefused, DatabaseUnreachable
from datp.hotstore.store import Archivable, Found, Reply, Result, Store, Turn

log = logging.getLogger(__name__)

TOUCH_TRIES: Final = 5
"""How often one that is evicted between a call and the next is brought back again."""

DONE: Final = ("OK", "WOKEN", "SAME", "ASKED", "ALREADY", "TIMEOUT")
"""What a touch comes to that did something, now or before."""


class Archive:
    """A store and the database that it is archived in."""

    def __init__(self, store: Store, database: Database) -> None:
        self.database = database
        self.restorer = Restorer(store, database)
        self._store = store

    async def open(self, *, patiently: bool = False) -> None:
        """The database is there, and is the archive of this very store. Raises DatabaseError.

        Patiently: one that is away is looked at when it is first used; what needs none goes on meanwhile.
        """
        store_id, epoch, *_ = self._store.identity.split("/")
        named = (store_id, int(epoch), self._store.partitions)
        try:
            await self.database.open()
            await self.database.register_store(*named)
        except DatabaseUnreachable as error:
            if not patiently:
                raise
            log.warning("going on without the archive until it is back: %s", error)
            self.database.open_when_used(*named)

    async def close(self) -> None:
        await self.database.close()

    async def read(self, tx_ids: Sequence[str]) -> dict[str, Found]:
        """What SQL has of these, in the form in which the store gives it; nothing is written back."""
        states = await self.database.read_states(tx_ids)
        return {
            tx_id: Found(
                state.fields,
                {name: value.decode(errors="replace") for name, value in state.switches.items()},
                state.join,
                {"sleeping": _wakes_at(state.fields)} if state.phase in ("sleeping", "waiting") else {},
            )
            for tx_id, state in states.items()
        }

    async def find_external_id(self, owner: str, external_id: str) -> str | None:
        """The newest transaction that this owner started with it."""
        found = await self.database.find_external_id(owner, external_id)
        return found[0] if found else None

    async def restore(self, wanted: Wanted) -> Result:
        """It is back in memory, and what it is wanted for is done; see Restorer."""
        [result] = await self.restorer.restore([wanted])
        return result

    async def journal(self, tx_ids: Sequence[str]) -> None:
        """SQL holds those of these that have durability journal, as they are now.

        Raises DatabaseError: then that is not known.
        """
        async with self._store.turn() as turn:
            reply = turn.read_states(tx_ids, durability="journal")
        states = [
            archived_state(found.tx_id, found.version, found.fields, found.switches, found.join, is_owed=found.is_owed)
            for found in reply.value
            # One that has left memory was archived before, and so was one whose end has been told.
            if isinstance(found, Archivable) and (found.fields["phase"] != b"complete" or found.fields.get("untold"))
        ]
        if states:
            await self.database.write_states(states)


async def touch(
    store: Store, archive: Archive | None, wanted: Wanted, call: Callable[[Turn], Reply[list[Result]]]
) -> Result:
    """What the ordinary call comes to; one that has left memory is brought back for it.

    With durability journal SQL has it too when this returns; also where nothing changed, for the call before may have
    been cut off. Raises Conflict, StoreError, DatabaseError.
    """
    result = await _touch(store, archive, wanted, call)
    if archive is not None and result.code in DONE:
        await archive.journal([wanted.tx_id])
    return result


async def _touch(
    store: Store, archive: Archive | None, wanted: Wanted, call: Callable[[Turn], Reply[list[Result]]]
) -> Result:
    for _ in range(TOUCH_TRIES):
        async with store.turn() as turn:
            reply = call(turn)
        result = reply.value[0]
        if result.code == "NO_STATE" and archive is not None:
            archived = await archive.read([wanted.tx_id])
            if wanted.tx_id in archived:
                return Result("FINAL", (archived[wanted.tx_id].fields.get("status", b""),))
        if result.code != "EVICTED":
            return result
        if archive is None:
            raise no_archive(wanted.tx_id)
        result = await archive.restore(wanted)
        # Somebody else brought it back meanwhile: it is touched where it is now.
        if result.code not in ("PRESENT", "UNKNOWN"):
            return result
    raise Conflict(f"{wanted.tx_id}: it moves in and out of memory too fast; try again", reason="EVICTED")


def no_archive(tx_id: str) -> DatabaseRefused:
    """Why nothing can be done about one that has left memory."""
    return DatabaseRefused(
        f"{tx_id} has left memory, and this process has no archive to read it from: name one with DATP_DATABASE_URL"
    )


def _wakes_at(fields: dict[str, bytes]) -> float:
    times = [float(fields[name]) for name in ("wakes_at", "deadline") if fields.get(name)]
    return min(times, default=float("inf"))
