"""The archiver: states go to SQL in batches, and only what SQL holds durably is acknowledged.

While one batch is written, the next is claimed and encoded. A batch that could not be written is kept and written
before anything else is claimed; if this process dies with it, its claims run out and another archiver takes it up.
Where SQL turns out to be ahead, its word replaces the store's.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from typing import Final

from datp.archive.database import Database, encode
from datp.archive.events import OperatorEvents
from datp.archive.record import ArchivedState, archived_state
from datp.archive.restore import adopt, adopted
from datp.errors import BrokenState, DatabaseError, RowsRefused, StoreError
from datp.hotstore.store import Archivable, ArchiveAck, Store
from datp.model.ids import partition_of
from datp.model.operator_event import EventCode
from datp.service import Service
from datp.settings import Settings

log = logging.getLogger(__name__)

TRIES: Final = 3
"""Of a state that can't be stored, before it is set aside."""


class Archiver(Service):
    """The role `archive`, on any number of nodes: each partition is given to one of them at a time."""

    def __init__(
        self, store: Store, database: Database, settings: Settings, node_id: str, events: OperatorEvents
    ) -> None:
        super().__init__("archiver")
        self.settings = settings
        self.archived = 0
        """How many states this node has stored."""
        self._store = store
        self._database = database
        self._node_id = node_id
        self._events = events
        self._acknowledged: list[ArchiveAck] = []
        self._unwritten: list[ArchivedState] = []
        self._writing: asyncio.Task[None] | None = None
        self._refusals: Counter[tuple[str, int]] = Counter()
        """(txId, version) → how often it could not be stored."""
        self._poison: list[tuple[str, int, str]] = []
        self._awake = asyncio.Event()

    def wake(self) -> None:
        self._awake.set()

    async def turn(self) -> None:
        """One exchange: what SQL has stored since the last is acknowledged, and the next is claimed and written."""
        if self._unwritten and self._writing is None:
            # The last write failed.
            self._begin_to_write()
            await self._finish_writing()
        claimed = await self._claim()
        await encode(claimed)
        try:
            await self._finish_writing()
        except DatabaseError:
            self._keep(claimed)
            raise
        self._unwritten = claimed
        if claimed:
            self._begin_to_write()
        elif not self._acknowledged:
            await self._rest()

    async def stop(self) -> None:
        """What is being written is, and is acknowledged; nothing more is asked for, and the role is given up."""
        await super().stop()
        try:
            await asyncio.wait_for(self._say_goodbye(), self.settings.store_timeout_ms / 1000)
        except (StoreError, DatabaseError, TimeoutError) as error:
            log.warning("the archiver could not say goodbye: %s; its claims run out", error)

    async def _say_goodbye(self) -> None:
        if self._unwritten and self._writing is None:
            self._begin_to_write()
        await self._finish_writing()
        await self._exchange(0)

    async def _claim(self) -> list[ArchivedState]:
        """A batch, of several exchanges if need be: to read a thousand states in one call would hold up everybody.

        What was changed, or whose claim ran out, between two of them comes twice: the later one counts.
        """
        claimed: dict[str, ArchivedState] = {}
        want = self._want()
        try:
            while len(claimed) < self.settings.archive_batch:
                some = await self._exchange(want)
                claimed.update((state.tx_id, state) for state in some)
                if len(some) < want * self._store.partitions:
                    break
        except StoreError:
            self._keep(list(claimed.values()))
            raise
        return list(claimed.values())

    def _want(self) -> int:
        """Of each partition in one call: a batch shared among them, rounded up, so that one alone gets on."""
        return min(-(-self.settings.archive_batch // self._store.partitions), self.settings.batch_size_max)

    async def _exchange(self, want: int) -> list[ArchivedState]:
        """Acknowledges and claims, in one round trip for all partitions."""
        acknowledged, self._acknowledged = self._acknowledged, []
        by_partition: list[list[ArchiveAck]] = [[] for _ in range(self._store.partitions)]
        for one in acknowledged:
            by_partition[partition_of(one.tx_id)].append(one)
        async with self._store.turn() as turn:
            replies = [
                turn.next_to_archive(partition, self._node_id, want, acks)
                for partition, acks in enumerate(by_partition)
            ]
            poison, self._poison = self._poison, []
            if poison:
                turn.set_aside(poison)
        failed = [reply.error for reply in replies if reply.error is not None]
        if failed:
            # To acknowledge once more does no harm: it names the version.
            self._acknowledged = acknowledged
            raise failed[0]
        for tx_id, _, why in poison:
            await self._events.raise_event(EventCode.ARCHIVE_REFUSED, "a state", f"{tx_id}: {why}")
        claimed = [one for reply in replies for one in reply.value.claimed]
        states = [self._state_of(one) for one in claimed]
        return [state for state in states if state is not None]

    def _state_of(self, claimed: Archivable) -> ArchivedState | None:
        """The state as SQL keeps it; None for one that can't be read, which is claimed again later, and set aside."""
        try:
            return archived_state(
                claimed.tx_id,
                claimed.version,
                claimed.fields,
                claimed.switches,
                claimed.join,
                is_owed=claimed.is_owed,
            )
        except BrokenState as error:
            self._refused(claimed.tx_id, claimed.version, str(error))
            return None

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_to_write(self) -> None:
        self._writing = asyncio.create_task(self._write(), name="archiving")

    async def _finish_writing(self) -> None:
        """The batch in hand is stored. Raises DatabaseError: then it is still in hand."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            await writing

    def _keep(self, claimed: list[ArchivedState]) -> None:
        """These are in hand too; of what was claimed anew, the newer."""
        by_id = {state.tx_id: state for state in self._unwritten}
        by_id.update({state.tx_id: state for state in claimed})
        self._unwritten = list(by_id.values())

    async def _write(self) -> None:
        states = self._unwritten
        try:
            held = await self._database.write_states(states)
        except RowsRefused as error:
            for state in states:
                if why := error.refused.get(state.tx_id):
                    self._refused(state.tx_id, state.version, why)
            states = [state for state in states if state.tx_id not in error.refused]
            held = error.held
        taken = [state for state in states if state.tx_id not in held]
        ahead = [state for state in states if state.tx_id in held]
        if ahead:
            await self._give_back(ahead)
        self.archived += len(taken)
        self._acknowledged += [ArchiveAck(state.tx_id, state.version, 1) for state in taken]
        self._unwritten = []

    async def _give_back(self, states: list[ArchivedState]) -> None:
        """SQL holds a newer version of these, or another end: the store lost writes, and SQL's word counts."""
        found = await self._database.read_states([state.tx_id for state in states])
        live: list[ArchivedState] = []
        for state in states:
            sql = found.get(state.tx_id)
            if sql is None:
                continue
            log.warning(
                "%s: the archive is ahead (%s at version %s); its word counts", sql.tx_id, sql.status, sql.version
            )
            if sql.version > state.version:
                live.append(sql)
            else:
                await self._settle_final(sql, state.version + 1)
        if live:
            await adopt(self._store, live)

    async def _settle_final(self, sql: ArchivedState, version: int) -> None:
        """It ended once already, and that was told: the store has another, later end, which never was."""
        async with self._store.turn() as turn:
            turn.adopt([adopted(sql, version)], [sql.fields["state"]])

    def _refused(self, tx_id: str, version: int, why: str) -> None:
        """It can't be stored: it is tried again when its claim has run out, and then set aside."""
        self._refusals[tx_id, version] += 1
        tries = self._refusals[tx_id, version]
        log.error("%s can't be archived (try %d of %d): %s", tx_id, tries, TRIES, why)
        if tries >= TRIES:
            del self._refusals[tx_id, version]
            self._poison.append((tx_id, version, why))

    async def _rest(self) -> None:
        """Nothing is due; a final state that somebody waits for may come at any moment."""
        self._awake.clear()
        if not self.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._awake.wait(), self.settings.archive_interval_ms / 1000)
