"""The reconciler: what SQL knows to be live, and the store has lost, is put back.

It pages through SQL's live rows when it starts, after every failover or restart of the store's server, and every few
minutes. Most rows are in memory, or evicted, with the version that SQL holds or a newer one. What the store has in an
older version, or not at all, was lost with the store's last writes, and SQL's word replaces it. So it is with the
definitions.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import msgspec

from datp.archive.database import FIRST, Database
from datp.archive.publish import settle
from datp.archive.record import ArchivedState
from datp.archive.restore import adopt
from datp.errors import BrokenState
from datp.hotstore.store import Found, Result, Store
from datp.model.ids import TransactionId
from datp.model.next_move import BranchResult, Complete, branch_result
from datp.model.status import Phase, Status
from datp.model.transaction import decode_transaction
from datp.service import Service
from datp.settings import Settings

log = logging.getLogger(__name__)


class Reconciler(Service):
    """A part of the role `archive`."""

    def __init__(self, store: Store, database: Database, settings: Settings) -> None:
        super().__init__("reconciler")
        self.settings = settings
        self.rounds = 0
        """How often everything was compared."""
        self._store = store
        self._database = database
        self._awake = asyncio.Event()

    def wake(self) -> None:
        """The store's server was restarted, or another took its place."""
        self._awake.set()

    async def turn(self) -> None:
        self._awake.clear()
        await settle(self._store, self._database)
        found = await reconcile(self._store, self._database, self.settings.reconcile_batch)
        self.rounds += 1
        if found:
            log.warning("%d transactions that the store had lost were put back from the archive", found)
        if not self.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._awake.wait(), self.settings.reconcile_interval_ms / 1000)


async def reconcile(store: Store, database: Database, batch: int) -> int:
    """Every live row of SQL is in the store, in this version or a newer one; how many had to be put back."""
    put_back = 0
    after = FIRST
    while True:
        page = await database.live_versions(after, batch)
        put_back += await _put_back(store, database, page)
        if len(page) < batch:
            return put_back
        after = page[-1][0]


async def _put_back(store: Store, database: Database, page: Sequence[tuple[str, int]]) -> int:
    """Those of the page that the store has lost are back."""
    if not page:
        return 0
    async with store.turn() as turn:
        reply = turn.get_state([tx_id for tx_id, _ in page])
    behind: list[str] = []
    gone: list[str] = []
    for (tx_id, archived_version), known in zip(page, reply.value, strict=True):
        version = _version_of(known)
        if version is None:
            gone.append(tx_id)
        elif version < archived_version:
            behind.append(tx_id)
    states = [*(await database.read_states(behind)).values(), *await _claim_gone(store, database, gone)]
    states = await awaited(database, states)
    if not states:
        return 0
    results = await adopt(store, states)
    adopted = [state for state, result in zip(states, results, strict=True) if result.code == "OK"]
    for state in adopted:
        log.warning("%s was lost by the store, and is put back as the archive has it: %s", state.tx_id, state.status)
        if state.phase == Phase.JOINING:
            await ask_for_branches(store, database, state)
    return len(adopted)


def _version_of(known: Found | Result) -> int | None:
    """The version that the store has, in memory or as evicted; None: it knows nothing of it."""
    if isinstance(known, Found):
        return int(known.fields["version"])
    return int(known.text) if known.code == "EVICTED" else None


async def _claim_gone(store: Store, database: Database, tx_ids: list[str]) -> list[ArchivedState]:
    """Of those that the store knows nothing of: what is still live in SQL, with a version that is newer than any that
    the store may have had; so whoever writes an older one, from before the loss, is refused."""
    if not tx_ids:
        return []
    claimed: list[ArchivedState] = []
    # Read again: one that ended meanwhile, and whose time in memory was over, is final by now.
    for tx_id, state in (await database.read_states(tx_ids)).items():
        if state.is_final:
            continue
        version = max(state.version + 1, store.clock.now_ms())
        if await database.raise_version(tx_id, state.version, version):
            claimed.append(msgspec.structs.replace(state, version=version))
    return claimed


async def awaited(database: Database, states: Sequence[ArchivedState]) -> list[ArchivedState]:
    """Without the branches that nobody waits for: their parent is in SQL as it was before it started them, or after
    they were settled; it starts them again, or has no use for them."""
    parents = await database.read_states(list({state.parent for state in states if state.parent}))

    def is_awaited(state: ArchivedState) -> bool:
        parent = parents.get(state.parent or "")
        return not state.parent or (
            parent is not None and parent.phase == Phase.JOINING and parent.join.get(state.tx_id) == b""
        )

    return [state for state in states if is_awaited(state)]


async def ask_for_branches(store: Store, database: Database, parent: ArchivedState) -> None:
    """A parent that was put back hears of the branches that ended while nobody counted them."""
    open_branches = [name for name, result in parent.join.items() if not name.startswith(":") and not result]
    if not open_branches:
        return
    async with store.turn() as turn:
        reply = turn.get_state(open_branches, whole=True)
    in_sql = await database.read_states(open_branches)
    ended: list[tuple[str, str, str, str]] = []
    for branch_id, known in zip(open_branches, reply.value, strict=True):
        fields = known.fields if isinstance(known, Found) else in_sql[branch_id].fields if branch_id in in_sql else {}
        if fields.get("phase") == b"complete":
            status = fields["status"].decode()
            ended.append((parent.tx_id, branch_id, status, left_by(branch_id, fields)))
        elif not fields:
            log.error(
                "%s waits for its branch %s, which neither the store nor the archive has", parent.tx_id, branch_id
            )
    if ended:
        async with store.turn() as turn:
            turn.join_branch(ended)


def left_by(branch_id: str, fields: dict[str, bytes]) -> str:
    """What an ended branch leaves for its parent, made from its own state once more."""
    status, output = Status(fields["status"].decode()), fields.get("output") or b"null"
    end = Complete(status, output, fields.get("note", b"").decode())
    try:
        transaction = decode_transaction(fields["state"])
        transaction.take_back_output(output)
        result = branch_result(transaction, TransactionId(branch_id), end)
    except (BrokenState, KeyError):
        # Ended from outside, before it stored anything: there is nothing to undo.
        result = BranchResult(status, pipeline=fields.get("type", b"").decode(), note=end.note)
    return msgspec.json.encode(result).decode()
