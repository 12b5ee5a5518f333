"""The sender: claims what is owed, sends it, and acknowledges, until nothing is due. Any number of nodes may send.

    turn            one exchange with the store: what is done is acknowledged, what there is room for is claimed
    _take           a claimed delivery finds its lane; one whose URL is paused, or whose lane is full, goes back
    _send           a task: it is signed and posted, and its outcome is judged
    _settle         what follows from the outcome: done, tried again, moved to SQL, parked

The store holds a claim for a time-out and a margin. A delivery that could not be connected within the margin, by the
monotonic clock, is not sent any more: somebody else may have it.
"""

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import Callable
from typing import Final

from datp.archive.deliveries import (
    Attempt,
    Deliveries,
    DeliveryRow,
    DeliveryState,
    DueDelivery,
    attempt_line,
)
from datp.archive.events import OperatorEvents
from datp.errors import DatabaseError, StoreError
from datp.hotstore.store import Store, ToSend, WebhookAck
from datp.model.ids import partition_of
from datp.model.operator_event import EventCode
from datp.model.signature import signed_headers
from datp.reply_converter import reply_converter
from datp.service import RoleService
from datp.settings import Settings
from datp.webhooks.breaker import Breaker
from datp.webhooks.delivery import Delivery, Outcome, Verdict, delivery_from
from datp.webhooks.keys import OwnerKeys
from datp.webhooks.lanes import Lanes
from datp.webhooks.ledger import Ledger
from datp.webhooks.post import Poster
from datp.webhooks.schedule import parse_schedule

log = logging.getLogger(__name__)

BELL: Final = ":webhooks"
"""As include/webhook.lua rings it."""
GATHERS_S: Final = 0.004
"""Acknowledgements of so long travel together."""
AGAIN_MS: Final = 1_000
"""When one that could not be tried, for no fault of its receiver, is tried."""


class Sender(RoleService):
    """The role `webhooks`."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        events: OperatorEvents,
        keys: OwnerKeys,
        deliveries: Deliveries | None,
    ) -> None:
        """Within a running loop. Raises BadDefinition for settings that can't be used."""
        super().__init__("sender", settings)
        self.sent = 0
        """How many this node has delivered."""
        self.breaker = Breaker(store, events)
        self.ledger = Ledger(deliveries, settings, self._acknowledge) if deliveries is not None else None
        self._store = store
        self._events = events
        self._keys = keys
        self._deliveries = deliveries
        self._poster = Poster(settings)
        self._schedule = parse_schedule(settings.webhook_retries)
        self._lanes = Lanes(self._start, time.monotonic)
        self._name = secrets.token_hex(4)
        self._claims = 0
        self._in_hand = 0
        """Claimed, and not yet settled."""
        self._acks: list[WebhookAck] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._awake = asyncio.Event()
        self._due_at = [0.0] * store.partitions
        """When each partition is asked next, by the loop's clock."""
        self._sql_due_at = 0.0
        self._look_at = 0.0
        self._chance = random.Random(secrets.randbits(64))

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────

    def wake(self) -> None:
        self._awake.set()

    def owed(self, partition: int | None) -> None:
        """Something is owed in this partition, or in any."""
        for one in range(len(self._due_at)) if partition is None else (partition,):
            self._due_at[one] = 0.0
        self._awake.set()

    async def turn(self) -> None:
        await self._exchange()
        if self._deliveries is not None:
            await self._claim_from_sql(self._deliveries)
        await self._rest()

    async def stop(self) -> None:
        """Nothing more is claimed; what is under way is waited for, and acknowledged."""
        await super().stop()
        for delivery in self._lanes.leave_all():
            self._send_back(delivery, 0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.shutdown_grace_ms / 1000):
                await self._until_nothing_is_sent()
        for task in list(self._tasks):
            task.cancel()
        await self._until_nothing_is_sent()
        if self.ledger is not None:
            await self._write_ledger(self.ledger)
        try:
            await asyncio.wait_for(self._exchange(claims=False), self.settings.store_timeout_ms / 1000)
        except (StoreError, TimeoutError) as error:
            log.warning("the sender could not say goodbye: %s; its claims run out", error)
        await self._poster.close()

    async def _write_ledger(self, ledger: Ledger) -> None:
        try:
            await asyncio.wait_for(ledger.write(), self.settings.store_timeout_ms / 1000)
        except (DatabaseError, TimeoutError) as error:
            log.warning("what became of the last deliveries could not be written: %s", error)

    async def _until_nothing_is_sent(self) -> None:
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _exchange(self, *, claims: bool = True) -> None:
        """Acknowledges and claims, in one round trip for all partitions."""
        now = asyncio.get_running_loop().time()
        room = max(0, self.settings.webhook_in_flight_max - self._in_hand) if claims else 0
        want = -(-min(self.settings.webhook_batch, room) // self._store.partitions)
        acks, self._acks = self._acks, []
        by_partition: list[list[WebhookAck]] = [[] for _ in range(self._store.partitions)]
        for ack in acks:
            by_partition[partition_of(ack.tx_id)].append(ack)
        self._claims += 1
        claim = f"{self._name}.{self._claims}"
        # From before the store counts: the claim ends here no later than there.
        send_by = time.monotonic() + (self.settings.webhook_claim_ms - self.settings.webhook_timeout_ms) / 1000
        looks = now >= self._look_at
        asked: list[tuple[int, list[WebhookAck], int]] = []
        for partition, here in enumerate(by_partition):
            wants = want if self._due_at[partition] <= now else 0
            if here or wants:
                asked.append((partition, here, wants))
        if not asked and not looks and not self.breaker.has_reports:
            return
        async with self._store.turn() as turn:
            replies = [turn.next_webhooks(partition, wants, claim, here) for partition, here, wants in asked]
            reported = self.breaker.report(turn)
            troubles = self.breaker.look_again(turn) if looks else []
        failed: StoreError | None = None
        for (partition, here, wants), reply in zip(asked, replies, strict=True):
            if reply.error is not None:
                # To acknowledge once more does no harm: it names the claim.
                self._acks += here
                failed = reply.error
                continue
            self._heard(partition, here, wants, reply.value, send_by, now)
        if looks:
            self.breaker.looked(troubles)
            self._look_at = now + self.settings.webhook_interval_ms / 1000
            for delivery, back_ms in self._lanes.tidy():
                self._send_back(delivery, back_ms)
        await self.breaker.reported(reported)
        if failed is not None:
            raise failed

    def _heard(
        self, partition: int, acks: list[WebhookAck], wants: int, reply: ToSend, send_by: float, now: float
    ) -> None:
        self._store.clock.heard(reply.now_ms)
        for ack, result in zip(acks, reply.acknowledged, strict=True):
            if result.code == "OK" and result.text == "1" and self.ledger is not None:
                self.ledger.settle(ack.tx_id)
            elif result.code == "REPLACED":
                self._due_at[partition] = 0.0
        if wants:
            wait_s = self.settings.webhook_interval_ms / 1000
            if len(reply.claimed) >= wants:
                wait_s = 0.0
            elif reply.next_due_ms is not None:
                wait_s = min(wait_s, max(0.0, (reply.next_due_ms - reply.now_ms) / 1000))
            self._due_at[partition] = now + wait_s
        elif reply.next_due_ms is not None:
            self._due_at[partition] = min(
                self._due_at[partition], now + max(0.0, (reply.next_due_ms - reply.now_ms) / 1000)
            )
        for tx_id, record in reply.claimed:
            try:
                delivery = delivery_from(tx_id, record, send_by, reply_converter(self.settings.reply_converter))
            except (KeyError, ValueError) as error:
                log.error("what is owed for %s can't be read, and is given up: %r", tx_id, error)
                self._acknowledge(WebhookAck(tx_id, record.get("claim", b"").decode(), "given_up", 0, repr(error)))
                continue
            self._take(delivery)

    async def _claim_from_sql(self, deliveries: Deliveries) -> None:
        now = asyncio.get_running_loop().time()
        room = self.settings.webhook_in_flight_max - self._in_hand
        if now < self._sql_due_at or room <= 0 or self.stopping.is_set():
            return
        self._sql_due_at = now + self.settings.webhook_interval_ms / 1000
        self._claims += 1
        claim = f"{self._name}.{self._claims}"
        send_by = time.monotonic() + (self.settings.webhook_claim_ms - self.settings.webhook_timeout_ms) / 1000
        now_ms, want = self._store.clock.now_ms(), min(room, self.settings.webhook_batch)
        try:
            due = await deliveries.claim(now_ms, now_ms + self.settings.webhook_claim_ms, want, claim)
        except DatabaseError as error:
            log.warning("deliveries that SQL holds can't be claimed: %s; trying again", error)
            return
        if len(due) >= want:
            self._sql_due_at = now
        for one in due:
            self._take(_from_sql(one, claim, send_by))

    async def _rest(self) -> None:
        """Until something is due, or has been done."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        wakes = [self._look_at]
        if self._in_hand < self.settings.webhook_in_flight_max:
            wakes += self._due_at
            if self._deliveries is not None:
                wakes.append(self._sql_due_at)
        wait_s = min(wakes) - now
        if not self._acks and wait_s > 0 and not self.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._awake.wait(), wait_s)
        self._awake.clear()
        if self._acks and not self.stopping.is_set():
            # What else is done meanwhile travels along.
            await asyncio.sleep(GATHERS_S)
        else:
            await asyncio.sleep(0)

    # ── one delivery ─────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, delivery: Delivery) -> None:
        """It is sent, or waits in its lane, or goes back."""
        self._in_hand += 1
        known = self.breaker.troubles.get(delivery.url)
        if known is not None and not delivery.forced:
            if known.is_gone:
                self._park(delivery, f"{delivery.url} wants no more: {known.comment}")
                return
            pause_ms = self.breaker.pause_ms(delivery.url, self._store.clock.now_ms())
            if pause_ms > 0:
                # A little apart, so that they don't come back all at once.
                self._postpone(delivery, round(pause_ms * (1 + 0.1 * self._chance.random())))
                return
            if self.breaker.calling[delivery.url] > 0:
                self._postpone(delivery, round(AGAIN_MS * (1 + self._chance.random())))
                return
        self.breaker.calling[delivery.url] += 1
        back_ms = self._lanes.enter(delivery, self.settings.webhook_per_host_max)
        if back_ms is not None:
            self._send_back(delivery, back_ms)

    def _send_back(self, delivery: Delivery, back_ms: int) -> None:
        """Its lane has no place for it."""
        self._called(delivery)
        self._postpone(delivery, round(back_ms * (1 + 0.2 * self._chance.random())))

    def _start(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._send(delivery))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, delivery: Delivery) -> None:
        """Signed, posted, and settled. Never raises."""
        outcome: Outcome | None = None
        began = time.monotonic()
        try:
            if not self.stopping.is_set():
                outcome = await self._post(delivery)
        except DatabaseError as error:
            log.warning("%s is not sent: the keys of %s can't be read: %s", delivery.id, delivery.owner, error)
        except Exception:
            log.exception("%s could not be sent", delivery.id)
            outcome = Outcome(Verdict.FAILED, 0, 0, "it could not be sent; the node's log says why")
        finally:
            self._called(delivery)
            is_fine = outcome is not None and outcome.verdict is Verdict.DELIVERED
            took_ms = (time.monotonic() - began) * 1000
            self._lanes.leave(delivery, took_ms, self.settings.webhook_per_host_max, is_fine=is_fine)
            if outcome is None:
                self._postpone(delivery, 0 if self.stopping.is_set() else AGAIN_MS)
        if outcome is not None:
            self.breaker.heard(delivery.url, outcome)
            self._settle(delivery, outcome)

    async def _post(self, delivery: Delivery) -> Outcome | None:
        """None: it was too late to be sent under this claim."""
        now_ms = self._store.clock.now_ms()
        keys = await self._keys.of(delivery.owner, now_ms)
        if time.monotonic() > delivery.send_by:
            return None
        headers = signed_headers(delivery.id, now_ms // 1000, delivery.body, keys)
        return await self._poster.post(delivery.url, headers, delivery.body, self.settings.webhook_timeout_ms)

    # ── what follows ─────────────────────────────────────────────────────────────────────────────────────────

    def _settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """What follows from a try."""
        tries = delivery.attempt + 1
        if outcome.verdict is Verdict.DELIVERED:
            self.sent += 1
            self._done(delivery, outcome, tries, DeliveryState.DELIVERED)
            return
        wait_ms = None
        if outcome.verdict is not Verdict.GONE:
            wait_ms = self._schedule.wait_ms(tries, self._chance.random(), outcome.retry_after_ms)
        if wait_ms is None:
            self._give_up(delivery, outcome, tries)
            return
        log.info(
            "%s failed (try %d, %d ms): %s; again in %.0f s",
            *(delivery.id, tries, outcome.latency_ms, outcome.comment, wait_ms / 1000),
        )
        moves = delivery.is_end and self.ledger is not None and tries >= self.settings.webhook_tries_in_store
        if delivery.from_sql or moves:
            self._keep_in_sql(delivery, outcome, tries, DeliveryState.WAITING, wait_ms)
            return
        self._remember(delivery, outcome, tries, DeliveryState.RETRYING, wait_ms)
        self._finish(delivery, "retry", wait_ms, outcome.comment)

    def _give_up(self, delivery: Delivery, outcome: Outcome, tries: int) -> None:
        """No further try: an end waits for somebody to send it again; after a report comes what came after it."""
        log.warning("%s is given up after %d tries: %s", delivery.id, tries, outcome.comment)
        self._tell(
            EventCode.WEBHOOK_GIVEN_UP,
            delivery.url,
            f"{delivery.id} of {delivery.owner} is given up after {tries} tries, lastly: {outcome.comment}."
            " It can be sent again: datp webhooks resend ID",
        )
        if not delivery.is_end:
            self._done(delivery, outcome, tries, DeliveryState.GIVEN_UP)
        elif self.ledger is not None:
            self._keep_in_sql(delivery, outcome, tries, DeliveryState.PARKED, None)
        else:
            self._finish(delivery, "parked", 0, outcome.comment)

    def _park(self, delivery: Delivery, why: str) -> None:
        """It is not even tried."""
        self._give_up(delivery, Outcome(Verdict.GONE, 0, 0, why), delivery.attempt)

    def _done(self, delivery: Delivery, outcome: Outcome, tries: int, state: DeliveryState) -> None:
        if delivery.from_sql:
            self._keep_in_sql(delivery, outcome, tries, state, None)
            return
        self._remember(delivery, outcome, tries, state, None)
        result = "delivered" if state is DeliveryState.DELIVERED else "given_up"
        self._finish(delivery, result, 0, outcome.comment)

    def _keep_in_sql(
        self, delivery: Delivery, outcome: Outcome, tries: int, state: DeliveryState, wait_ms: int | None
    ) -> None:
        """SQL holds it, or what became of it."""
        assert self.ledger is not None
        row = self._row(delivery, outcome, tries, state, wait_ms)
        self._in_hand -= 1
        if delivery.from_sql:
            self.ledger.finish(row, delivery.claim)
            return
        stays = WebhookAck(
            delivery.tx_id, delivery.claim, "parked" if wait_ms is None else "retry", wait_ms or 0, outcome.comment
        )
        self.ledger.move(row, WebhookAck(delivery.tx_id, delivery.claim, "moved", 0, ""), stays)

    def _remember(
        self, delivery: Delivery, outcome: Outcome, tries: int, state: DeliveryState, wait_ms: int | None
    ) -> None:
        if self.ledger is not None:
            self.ledger.remember(self._row(delivery, outcome, tries, state, wait_ms))

    def _row(
        self, delivery: Delivery, outcome: Outcome, tries: int, state: DeliveryState, wait_ms: int | None
    ) -> DeliveryRow:
        now_ms = self._store.clock.now_ms()
        is_held = state in (DeliveryState.WAITING, DeliveryState.PARKED)
        attempt = Attempt(now_ms - outcome.latency_ms, outcome.status, outcome.latency_ms, outcome.says)
        return DeliveryRow(
            id=delivery.id,
            tx_id=delivery.tx_id,
            sequence=delivery.sequence,
            owner=delivery.owner,
            url=delivery.url,
            kind=delivery.kind,
            state=state,
            tries=tries,
            next_try_at=None if wait_ms is None else now_ms + wait_ms,
            status=outcome.status,
            says=outcome.says,
            created_at=now_ms,
            updated_at=now_ms,
            body=delivery.body if is_held else None,
            attempts=attempt_line(attempt),
        )

    def _postpone(self, delivery: Delivery, wait_ms: int) -> None:
        """It was not tried."""
        if delivery.from_sql:
            assert self.ledger is not None
            self._in_hand -= 1
            self.ledger.postpone(delivery.id, delivery.claim, self._store.clock.now_ms() + wait_ms)
        else:
            self._finish(delivery, "postponed", wait_ms, "")

    def _finish(self, delivery: Delivery, result: str, wait_ms: int, comment: str) -> None:
        self._in_hand -= 1
        self._acknowledge(WebhookAck(delivery.tx_id, delivery.claim, result, wait_ms, comment))

    def _acknowledge(self, ack: WebhookAck) -> None:
        self._acks.append(ack)
        self._awake.set()

    def _called(self, delivery: Delivery) -> None:
        self.breaker.calling[delivery.url] -= 1
        if self.breaker.calling[delivery.url] <= 0:
            del self.breaker.calling[delivery.url]

    def _tell(self, code: EventCode, subject: str, text: str) -> None:
        task = asyncio.create_task(self._events.raise_event(code, subject, text))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class WebhookBell(RoleService):
    """Tells the sender when something may be owed. The bell is a hint: a lost one costs `webhook_interval_ms`."""

    def __init__(self, store: Store, owed: Callable[[int | None], None], settings: Settings) -> None:
        super().__init__("webhook bell", settings)
        self._store = store
        self._owed = owed

    async def turn(self) -> None:
        # A wait that is longer than the store may be silent would be taken for a lost connection.
        look_s = min(1.0, self.settings.store_timeout_ms / 2000)
        rang = await self._store.hear_bell([BELL], look_s)
        if rang is not None:
            self._owed(self._store.tags.index(rang[rang.index("{") : rang.index("}") + 1]))

    async def stop(self) -> None:
        """Ends at once: a wait for the bell is not worth waiting for."""
        self.stopping.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def _from_sql(due: DueDelivery, claim: str, send_by: float) -> Delivery:
    return Delivery(
        tx_id=due.tx_id,
        sequence=due.sequence,
        owner=due.owner,
        kind=due.kind,
        url=due.url,
        body=due.body,
        attempt=due.tries,
        claim=claim,
        send_by=send_by,
        from_sql=True,
        forced=due.forced,
    )
