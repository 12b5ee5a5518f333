"""The ledger: what became of deliveries goes to SQL in batches, and those that move there are let go once they have.

That SQL is away costs nobody a delivery: what should have moved stays in the store, and what was only to be remembered
is kept for a while.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final

from datp.archive.deliveries import Deliveries, DeliveryRow
from datp.errors import DatabaseError, DatabaseUnreachable
from datp.hotstore.store import WebhookAck
from datp.service import RoleService
from datp.settings import Settings

log = logging.getLogger(__name__)

BATCH: Final = 1_000
KEPT_MAX: Final = 20_000
"""Rows that are remembered while SQL is away; they are told in the log as well."""
GATHERS_S: Final = 0.1
"""Many rows are written nearly as fast as one."""
TIDIES_S: Final = 600.0
"""How often what is old is deleted."""


class Ledger(RoleService):
    """A part of the role `webhooks`, where there is a database."""

    def __init__(self, deliveries: Deliveries, settings: Settings, acknowledge: Callable[[WebhookAck], None]) -> None:
        super().__init__("webhook ledger", settings)
        self._deliveries = deliveries
        self._acknowledge = acknowledge
        self._rows: list[DeliveryRow] = []
        self._moving: list[tuple[DeliveryRow, WebhookAck, WebhookAck]] = []
        self._finished: list[tuple[DeliveryRow, str]] = []
        self._postponed: list[tuple[str, str, int]] = []
        self._settled: list[str] = []
        self._awake = asyncio.Event()
        self._tidies_at = asyncio.get_running_loop().time() + TIDIES_S

    # ── what is to be written ────────────────────────────────────────────────────────────────────────────────

    def remember(self, row: DeliveryRow) -> None:
        """What became of one that the store holds, or held."""
        self._rows.append(row)
        if len(self._rows) > KEPT_MAX:
            del self._rows[: KEPT_MAX // 10]
            log.warning("what became of %d deliveries is told in the log alone: SQL is away", KEPT_MAX // 10)
        self._awake.set()

    def move(self, row: DeliveryRow, moved: WebhookAck, stays: WebhookAck) -> None:
        """SQL takes it over; the store is told `moved` once it has, or `stays` when it can't."""
        self._moving.append((row, moved, stays))
        self._awake.set()

    def finish(self, row: DeliveryRow, claim: str) -> None:
        """What became of one that SQL holds."""
        self._finished.append((row, claim))
        self._awake.set()

    def postpone(self, id_: str, claim: str, next_try_at: int) -> None:
        """One that SQL holds was not tried."""
        self._postponed.append((id_, claim, next_try_at))
        self._awake.set()

    def settle(self, tx_id: str) -> None:
        """An end need not be told again, and its state has left memory: SQL alone can know."""
        self._settled.append(tx_id)
        self._awake.set()

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────

    def wake(self) -> None:
        self._awake.set()

    async def turn(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._awake.wait(), self.settings.webhook_interval_ms / 1000)
        if not self._moving and len(self._rows) < BATCH:
            await self.pause(GATHERS_S)
        self._awake.clear()
        await self.write()
        now = asyncio.get_running_loop().time()
        if now >= self._tidies_at:
            self._tidies_at = now + TIDIES_S
            await self._deliveries.delete_old(self._long_ago_ms(), BATCH)

    async def write(self) -> None:
        """Everything that is to be written is. Raises DatabaseError; then it is still to be written."""
        while self._moving or self._rows or self._finished or self._postponed or self._settled:
            await self._write_rows()
            await self._write_rest()

    async def _write_rows(self) -> None:
        moving, self._moving = self._moving, []
        rows, self._rows = self._rows[:BATCH], self._rows[BATCH:]
        refused: set[str] = set()
        try:
            await self._write_what_can_be([*rows, *(row for row, _, _ in moving)], refused)
        except DatabaseUnreachable:
            for _, _, stays in moving:
                self._acknowledge(stays)
            self._rows = rows + self._rows
            raise
        for row, moved, stays in moving:
            self._acknowledge(stays if row.id in refused else moved)

    async def _write_what_can_be(self, rows: list[DeliveryRow], refused: set[str]) -> None:
        """One that SQL doesn't take holds up no others."""
        try:
            await self._deliveries.write(rows)
        except DatabaseUnreachable:
            raise
        except DatabaseError as error:
            if len(rows) == 1:
                log.error("what became of %s can't be written: %s", rows[0].id, error)
                refused.add(rows[0].id)
                return
            middle = len(rows) // 2
            await self._write_what_can_be(rows[:middle], refused)
            await self._write_what_can_be(rows[middle:], refused)

    async def _write_rest(self) -> None:
        finished, self._finished = self._finished, []
        postponed, self._postponed = self._postponed, []
        settled, self._settled = self._settled, []
        try:
            if finished:
                await self._deliveries.finish(finished)
                finished = []
            if postponed:
                await self._deliveries.postpone(postponed)
                postponed = []
            await self._deliveries.settle(settled)
        except DatabaseUnreachable:
            self._finished, self._postponed = finished + self._finished, postponed + self._postponed
            self._settled = settled + self._settled
            raise
        except DatabaseError as error:
            # Their claims run out, and they are tried again.
            log.error("what became of %d deliveries can't be written: %s", len(finished) + len(postponed), error)

    def _long_ago_ms(self) -> int:
        return time.time_ns() // 1_000_000 - self.settings.webhook_log_period_ms
