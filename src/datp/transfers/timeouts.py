"""The role `timeouts`, on any number of nodes: what is past its deadline is expired, and who waits for it is told.

A sweep takes a bounded batch in one SQL transaction, with history, positions and what is to be told; sweepers pass over
what another holds. What is to be told stands in SQL until it was: a crash delays it by a claim, and loses nothing.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from datp.archive.archive import Archive, touch
from datp.archive.restore import Wanted
from datp.errors import Conflict, NotFound
from datp.hotstore.store import Store
from datp.model.switches import encode_switch
from datp.service import RoleService
from datp.settings import Settings
from datp.transfers.follower import Follower, Source
from datp.transfers.ledger import Ledger, OwedDelivery, OwedEvent
from datp.transfers.state import SHOWN_AS
from datp.transfers.telling import deliveries
from datp.transfers.transfer import Transfer

log = logging.getLogger(__name__)

TOLD_AT_ONCE = 200
TOLD_BESIDE = 20
"""Switches that are set side by side."""


class TransferSweeper(RoleService):
    """Expires what is due, soon after it is."""

    def __init__(self, ledger: Ledger, settings: Settings, teller: "TransferTeller") -> None:
        super().__init__("transfer sweeper", settings)
        self.expired = 0
        """How many this node has expired."""
        self._ledger = ledger
        self._teller = teller

    async def turn(self) -> None:
        number = await self._ledger.expire_due(self.settings.transfer_batch)
        if number:
            self.expired += number
            self._teller.wake()
        if number < self.settings.transfer_batch:
            soon = await self._ledger.next_deadline_in_ms()
            look_ms = self.settings.transfer_look_ms
            await self.pause(min(look_ms, look_ms if soon is None else soon + 1) / 1000)


class TransferTeller(RoleService):
    """Sets the switches of transactions that wait for a transfer, and owes its parties their webhooks."""

    def __init__(self, ledger: Ledger, store: Store, archive: Archive, settings: Settings) -> None:
        super().__init__("transfer teller", settings)
        self._ledger = ledger
        self._store = store
        self._archive = archive
        self._awake = asyncio.Event()

    def wake(self) -> None:
        self._awake.set()

    async def turn(self) -> None:
        self._awake.clear()
        owed = await self._ledger.claim_events(TOLD_AT_ONCE, self.settings.transfer_claim_ms)
        if owed:
            beside = asyncio.Semaphore(TOLD_BESIDE)

            async def tell(event: OwedEvent, transfer: Transfer) -> None:
                async with beside:
                    await self._set_switch(event, transfer)

            await asyncio.gather(*(tell(event, transfer) for event, transfer in owed))
            await self._ledger.told([event.id for event, _ in owed], await self._deliveries(owed))
        if len(owed) < TOLD_AT_ONCE and not self.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._awake.wait(), self.settings.transfer_look_ms / 1000)

    async def _deliveries(self, owed: Sequence[tuple[OwedEvent, Transfer]]) -> list[OwedDelivery]:
        """The webhooks of the parties."""
        parties: dict[str, set[str]] = {}
        for _, transfer in owed:
            parties.setdefault(transfer.owner, set()).update((transfer.payer, transfer.payee))
        webhooks = {
            owner: await self._ledger.webhooks_of(owner, sorted(names)) for owner, names in sorted(parties.items())
        }
        return [one for event, transfer in owed for one in deliveries(event, transfer, webhooks[transfer.owner])]

    async def _set_switch(self, event: OwedEvent, transfer: Transfer) -> None:
        """The transaction that waits for the transfer knows how it ended; the same again changes nothing."""
        if not transfer.tx_id or event.kind == "late-fulfil":
            return
        tx_id, name = transfer.tx_id, transfer.switch
        value = encode_switch(name, SHOWN_AS[transfer.state].value, self._store.settings)
        try:
            result = await touch(
                self._store,
                self._archive,
                Wanted(tx_id, "switch", name, value),
                lambda turn: turn.set_switch([(tx_id, name, value)]),
            )
        except (NotFound, Conflict) as error:
            log.warning("%s waits for transfer %s no more: %s", tx_id, transfer.transfer_id, error)
            return
        if result.code not in ("OK", "WOKEN", "SAME"):
            # It has ended, or is gone: there is nobody to be told.
            log.info("%s was not told of transfer %s: %s %s", tx_id, transfer.transfer_id, result.code, result.text)


class TransferFollower(RoleService):
    """Reads on in a history that somebody else appends to."""

    def __init__(self, follower: Follower, settings: Settings) -> None:
        super().__init__("transfer follower", settings)
        self._follower = follower

    async def turn(self) -> None:
        scanned = await self._follower.scan(self.settings.follow_batch, self.settings.transfer_batch)
        if scanned.changes < self.settings.follow_batch and scanned.due < self.settings.transfer_batch:
            await self.pause(self.settings.follow_look_ms / 1000)


def timeouts(store: Store, archive: Archive, settings: Settings) -> list[RoleService]:
    """The loops of the role."""
    ledger = Ledger(archive.database)
    teller = TransferTeller(ledger, store, archive, settings)
    loops: list[RoleService] = [TransferSweeper(ledger, settings, teller), teller]
    if settings.follow_source:
        source = Source(settings.follow_source, settings.follow_transfers, settings.follow_history)
        loops.append(TransferFollower(Follower(archive.database, source), settings))
    return loops
