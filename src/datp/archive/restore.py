"""The way back: what left memory is read from SQL and put into the hot store again, or SQL's newer word replaces it.

What is restored is told what it was touched for (its time came, a switch, a cancel) in the same script call: there
is no moment between, in which a second caller could find it back and not yet touched. Whoever comes second is answered
PRESENT, and does what it wants by the ordinary call.
"""

import logging
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from datp.archive.database import Database
from datp.archive.record import ArchivedState
from datp.hotstore.store import Adopted, Evicted, Reply, Restored, Result, Store
from datp.model.status import Phase

log = logging.getLogger(__name__)

LOST: Final = "it left memory at version {evicted}, but the archive holds {held}"
"""Why a sleeper is parked that SQL can't give back."""

ThenDo = Literal["", "due", "wake", "switch", "cancel"]


class Wanted(msgspec.Struct, frozen=True):
    """An evicted sleeper that is wanted back, and what for."""

    tx_id: str
    then_do: ThenDo = ""
    name: str = ""
    """The switch; or who cancels, and why."""
    value: str = ""
    """The switch's value, JSON."""


class Restorer:
    """Brings back what was evicted."""

    def __init__(self, store: Store, database: Database) -> None:
        self._store = store
        self._database = database

    async def restore(self, wanted: Sequence[Wanted]) -> list[Result]:
        """What became of each, as `restore` answers: it is back, and what it is wanted for is done.

        PRESENT: it is there already; do what is wanted by the ordinary call. UNKNOWN: it was never evicted, or is back
        and gone on. LOST: SQL can't give it back, and it is on the exception list. Raises StoreError, DatabaseError.
        """
        results = await self._try(wanted)
        # The version in SQL is older than the one that was evicted: a read that came too early would be read again.
        again = [place for place, result in enumerate(results) if result.code in ("NEWER", "MISSING")]
        if again:
            for place, result in zip(again, await self._try([wanted[place] for place in again]), strict=True):
                results[place] = result
        for place, (one, result) in enumerate(zip(wanted, results, strict=True)):
            if result.code in ("NEWER", "MISSING"):
                results[place] = await self._park(one.tx_id, result)
            elif result.code == "OLDER":
                results[place] = await self._adopt(one.tx_id)
        return results

    async def _try(self, wanted: Sequence[Wanted]) -> list[Result]:
        """One reading and one call; MISSING for what SQL hasn't."""
        found = await self._database.read_states([one.tx_id for one in wanted])
        here = [one for one in wanted if one.tx_id in found]
        results = {one.tx_id: Result("MISSING") for one in wanted}
        if here:
            items = [_restored(found[one.tx_id], one) for one in here]
            async with self._store.turn() as turn:
                reply = turn.restore(items, [found[one.tx_id].fields["state"] for one in here])
            results.update({one.tx_id: result for one, result in zip(here, reply.value, strict=True)})
        return [results[one.tx_id] for one in wanted]

    async def _park(self, tx_id: str, refused: Result) -> Result:
        """SQL has lost it, or an older version of it: an operator has to know."""
        async with self._store.turn() as turn:
            known = turn.get_state([tx_id])
        evicted = known.value[0]
        if not isinstance(evicted, Result) or evicted.code != "EVICTED":
            return Result("PRESENT") if not isinstance(evicted, Result) else Result("UNKNOWN")
        found = await self._database.read_states([tx_id])
        held = f"version {found[tx_id].version}" if tx_id in found else "nothing"
        reason = LOST.format(evicted=evicted.text, held=held)
        log.error("%s: %s; it is on the exception list", tx_id, reason)
        async with self._store.turn() as turn:
            reply = turn.park_lost([(tx_id, int(evicted.text), reason)])
        return Result("LOST", (reason,)) if reply.value[0].code == "OK" else Result("PRESENT")

    async def _adopt(self, tx_id: str) -> Result:
        """SQL is ahead of what was evicted: its word counts. What is wanted is then done by the ordinary call."""
        found = await self._database.read_states([tx_id])
        await adopt(self._store, [found[tx_id]])
        return Result("PRESENT")


async def adopt(store: Store, states: Sequence[ArchivedState]) -> list[Result]:
    """SQL's word replaces the store's, where SQL is ahead."""
    async with store.turn() as turn:
        reply: Reply[list[Result]] = turn.adopt(
            [adopted(state) for state in states], [state.fields["state"] for state in states]
        )
    return reply.value


def adopted(state: ArchivedState, version: int | None = None) -> Adopted:
    """The state as `adopt` takes it; with another version where the store is to have a newer one than SQL."""
    fields = state.fields
    return Adopted(
        state.tx_id,
        state.version if version is None else version,
        _flat(fields, without="state"),
        _flat(state.switches),
        _flat(state.join),
        state.phase,
        # One that ran when it was archived goes back to the queue that it was taken from.
        _text(fields, "queue") or "in",
        state.node_group,
        _number(fields, "deadline"),
        _number(fields, "wakes_at") if state.phase in (Phase.SLEEPING, Phase.WAITING) else 0,
        int(state.reply_owed),
    )


def evicted(state: ArchivedState) -> Evicted:
    """A sleeper as `evict` takes it."""
    fields = state.fields
    times = [_number(fields, "wakes_at"), 0 if fields.get("undoing") else _number(fields, "deadline")]
    return Evicted(
        state.tx_id,
        state.version,
        min((time for time in times if time), default=0),
        state.owner,
        state.external_id or "",
        state.request_hash,
    )


def _restored(state: ArchivedState, wanted: Wanted) -> Restored:
    return Restored(
        state.tx_id,
        state.version,
        _flat(state.fields, without="state"),
        _flat(state.switches),
        wanted.then_do,
        wanted.name,
        wanted.value,
    )


def _flat(values: dict[str, bytes], *, without: str = "") -> list[str]:
    """name, value, name, value … as scripts take it; cmsgpack knows texts, but no bytes."""
    return [
        text for name, value in values.items() if name != without for text in (name, value.decode(errors="replace"))
    ]


def _text(fields: dict[str, bytes], name: str) -> str:
    return fields.get(name, b"").decode()


def _number(fields: dict[str, bytes], name: str) -> int:
    stored = fields.get(name)
    return int(float(stored)) if stored else 0
