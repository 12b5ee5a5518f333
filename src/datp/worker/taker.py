"""Turns: the outcomes of the last and the request for more travel together, in one round trip.

Two turns may be under way, so that the store works while this process does. Each has a lane; a turn whose reply was
lost is sent again on its lane with the same number, and gets the same transactions (decision 2).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from datp.clock import Clock
from datp.errors import StoreError, StoreUnreachable
from datp.hotstore.store import Dequeued, Reply, Result, Store, Turn
from datp.model.event import Event
from datp.model.next_move import Park
from datp.service import Service
from datp.settings import Settings
from datp.worker.outgoing import Sent, add_outcomes, add_requests, answer_requests, unanswered
from datp.worker.run import Outbox, Request, Run, verdict_in
from datp.worker.slots import Slots

log = logging.getLogger(__name__)

LANES: Final = 2

TAKEN: Final = frozenset({"OK", "ALREADY", "WOKEN"})
SOMEBODY_ELSES: Final = frozenset({"STALE_TOKEN", "NO_STATE"})
"""What scripts answer to an outcome: the store has it; or somebody else runs it by now, or has ended it."""


class Asked(msgspec.Struct):
    """What a lane asked of one partition, kept until the reply has come."""

    partition: int
    turn: int
    want: int
    alone: bool
    looks: int
    """How often there had been a reason to look there when it was asked."""


class Taker(Service):
    """Sends what has ended, and takes what is queued, as long as there are free slots."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        node_id: str,
        slots: Slots,
        outbox: Outbox,
        signal: asyncio.Event,
        *,
        on_admin: Callable[[int, list[bytes]], None],
        on_branch_ended: Callable[[], None],
        on_sleep: Callable[[int], None],
    ) -> None:
        super().__init__("taker")
        self.in_hand: dict[str, Run] = {}
        """token → run: everything that this node is answerable for."""
        self.empty = asyncio.Event()
        """Set while nothing is in hand."""
        self.empty.set()
        self.paused = False
        self.draining = False
        self.settings = settings
        self._store = store
        self._clock = clock
        self._node_id = node_id
        self._slots = slots
        self._outbox = outbox
        self._signal = signal
        self._on_admin = on_admin
        self._on_branch_ended = on_branch_ended
        self._on_sleep = on_sleep
        self._turn = 0
        self._first_partition = 0
        self._lanes = deque(str(lane) for lane in range(LANES))
        self._unanswered: dict[str, list[Asked]] = {}
        self._exchanges: set[asyncio.Task[None]] = set()
        self._is_saying = False
        """Requests are under way. Those that follow wait for the answers, so that none overtakes another."""
        self._looks = [0] * store.partitions
        self._maybe_left = set(range(store.partitions))
        """Partitions whose queues may hold something."""
        self._backlog: set[int] = set()
        """Those of which the last reply said that work is left: both lanes may take from them at once."""
        self._being_asked: set[int] = set()
        self._asked_at = 0.0
        self._suspect_in: int | None = None
        self._suspect_since = 0.0
        self._solitary_until = 0.0
        self._trouble: StoreError | None = None
        self.hungry = asyncio.Event()
        """Set while it has free slots, and knows of nothing to take."""

    # ── what others tell it ──────────────────────────────────────────────────────────────────────────────────

    def look(self, partition: int | None = None) -> None:
        """There may be something in the queues: the bell rang, or somebody wants to be sure."""
        for there in range(self._store.partitions) if partition is None else (partition,):
            self._looks[there] += 1
            self._maybe_left.add(there)
        self._signal.set()

    def let_go(self, token: str) -> None:
        """This node is answerable for it no more."""
        self.in_hand.pop(token, None)
        if not self.in_hand:
            self.empty.set()

    @property
    def _may_take(self) -> bool:
        return not (self.paused or self.draining or self.stopping.is_set())

    def wake(self) -> None:
        self._signal.set()

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────

    async def turn(self) -> None:
        """One exchange begins as soon as there is a reason and a lane."""
        await self._signal.wait()
        self._signal.clear()
        while self._lanes and self._has_reason():
            lane = self._lanes.popleft()
            exchange = asyncio.create_task(self._exchange(lane), name=f"turn-{lane}")
            self._exchanges.add(exchange)
            exchange.add_done_callback(self._exchanges.discard)
            await asyncio.sleep(0)  # the exchange collects what there is before the next is considered
        if self._may_take and not self._maybe_left and self._slots.free > 0:
            self.hungry.set()
        else:
            self.hungry.clear()
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            self._signal.set()
            raise trouble

    async def settle(self) -> None:
        """Everything that waits has been sent, or can't be."""
        while self._outbox or self._exchanges:
            self._signal.set()
            if self._exchanges:
                await asyncio.wait(self._exchanges)
            else:
                await asyncio.sleep(0.001)

    def _has_reason(self) -> bool:
        if self._outbox.outcomes or self._lanes[0] in self._unanswered:
            return True
        if self._outbox.requests and not self._is_saying:
            return True
        now = self._clock.monotonic()
        if self.stopping.is_set():
            return False
        if self._is_time_to_look(now):
            return True
        if not self._may_take or self._is_held_back(now):
            return False
        if self._suspect_in is not None:
            return True
        return self._slots.free > 0 and any(map(self._is_worth_asking, self._maybe_left))

    def _is_worth_asking(self, partition: int) -> bool:
        """There may be something, and it is not on its way already."""
        if partition not in self._maybe_left:
            return False
        return partition in self._backlog or partition not in self._being_asked

    def _is_time_to_look(self, now: float) -> bool:
        return now - self._asked_at >= self.settings.idle_look_ms / 1000

    def _is_held_back(self, now: float) -> bool:
        """One that lost its lease is to be alone for a while, before and after it is taken; but not for ever."""
        if not self.in_hand and not self._slots.reserved:
            return False
        held_until = self._solitary_until
        if self._suspect_in is not None:
            if self._slots.free <= 0:
                return True
            held_until = max(held_until, self._suspect_since + self.settings.suspect_solitude_ms / 1000)
        if now >= held_until:
            return False
        asyncio.get_running_loop().call_later(held_until - now, self._signal.set)
        return True

    async def _exchange(self, lane: str) -> None:
        """One round trip: requests, outcomes, and the next transactions."""
        runs = self._next_outcomes()
        requests: list[Request] = []
        if self._outbox.requests and not self._is_saying:
            self._is_saying = True
            requests.extend(self._outbox.requests)
            self._outbox.requests.clear()
        asked: list[Asked] = []
        try:
            turn = self._store.turn()
            said = add_requests(turn, requests)
            ended = add_outcomes(turn, runs)
            asked = self._unanswered.pop(lane, []) or self._ask()
            dequeues = [self._dequeue(turn, ask, lane) for ask in asked]
            began = self._clock.monotonic()
            await turn.send()
            self._put_back(said, ended)
            self._hear(said, ended)
            heard, asked = asked, []
            self._take(lane, heard, dequeues, began)
            replies: list[Reply[Any]] = [reply for _, reply in (*said, *ended)] + dequeues
            self._trouble = self._trouble or next((r.error for r in replies if r.error is not None), None)
        except Exception as error:
            # A defect of ours: these runs' leases end, and another node takes them up.
            log.exception("a turn of %d outcomes failed: %s", len(runs), error)
            for run in runs:
                self.let_go(run.token)
            for request in requests:
                if not request.pending.future.done():
                    request.pending.future.set_exception(StoreError(f"a turn failed: {error}"))
            if asked:
                self._unanswered[lane] = asked
            self._trouble = StoreUnreachable(f"a turn failed: {error}")
        finally:
            if requests:
                self._is_saying = False
            self._lanes.append(lane)
            self._signal.set()

    def _next_outcomes(self) -> list[Run]:
        """Those that go with this turn: all of them, but no more documents than batch_bytes_max has room for."""
        outcomes = self._outbox.outcomes
        runs: list[Run] = []
        room = self.settings.batch_bytes_max
        while outcomes and (not runs or len(outcomes[0].state) <= room):
            room -= len(outcomes[0].state)
            runs.append(outcomes.popleft())
        return runs

    def _dequeue(self, turn: Turn, ask: Asked, lane: str) -> Reply[Dequeued]:
        return turn.dequeue(
            ask.partition,
            group=self.settings.node_group,
            node=self._node_id,
            lane=lane,
            turn=ask.turn,
            want=ask.want,
            alone=ask.alone,
        )

    def _put_back(self, said: Sent, ended: Sent) -> None:
        """What was not answered goes first with the next turn."""
        self._outbox.requests.extendleft(reversed(unanswered(said)))
        self._outbox.outcomes.extendleft(reversed(unanswered(ended)))

    # ── taking ───────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self) -> list[Asked]:
        """How many to take from which partition: what is free, shared among those that may have something."""
        now = self._clock.monotonic()
        is_look = self._is_time_to_look(now)
        if not self._may_take or self._is_held_back(now):
            if not is_look or self.stopping.is_set():
                return []
            # Admin events come with what is taken, so whoever takes nothing asks for nothing, and hears them.
            self._asked_at = now
            return [self._asking(partition, 0) for partition in range(self._store.partitions)]
        if self._suspect_in is not None:
            partition, self._suspect_in = self._suspect_in, None
            self._solitary_until = now + self.settings.suspect_solitude_ms / 1000
            together = max(1, min(self._slots.free, self.settings.together_max))
            return [self._asking(partition, together, alone=True)]
        if is_look:
            self._maybe_left.update(range(self._store.partitions))
        free = self._slots.free
        # Half at a time, so that one half runs while the other is on its way.
        free = min(free, max(1, -(-self._slots.count // LANES)), self.settings.batch_size_max)
        if free <= 0 and not is_look:
            return []
        partitions = [
            (self._first_partition + place) % self._store.partitions for place in range(self._store.partitions)
        ]
        partitions = [partition for partition in partitions if is_look or self._is_worth_asking(partition)]
        if not is_look:
            partitions = partitions[: max(free, 0)]
        if not partitions:
            return []
        self._first_partition = (partitions[0] + 1) % self._store.partitions
        share, more = divmod(max(free, 0), len(partitions))
        self._asked_at = now
        return [self._asking(partition, share + (place < more)) for place, partition in enumerate(partitions)]

    def _asking(self, partition: int, want: int, *, alone: bool = False) -> Asked:
        self._turn += 1
        self._slots.reserved += want
        self._being_asked.add(partition)
        return Asked(partition, self._turn, want, alone, self._looks[partition])

    def _take(self, lane: str, asked: list[Asked], replies: list[Reply[Dequeued]], began: float) -> None:
        """What came is run; what didn't come is asked for again."""
        lost = [ask for ask, reply in zip(asked, replies, strict=True) if reply.error is not None]
        if lost:
            self._unanswered[lane] = lost
        for ask, reply in zip(asked, replies, strict=True):
            if reply.error is not None:
                continue
            dequeued = reply.value
            self._slots.reserved -= ask.want
            self._being_asked.discard(ask.partition)
            (self._backlog.add if dequeued.is_left else self._backlog.discard)(ask.partition)
            self._clock.heard(dequeued.now_ms)
            if dequeued.is_left:
                self._maybe_left.add(ask.partition)
            elif self._looks[ask.partition] == ask.looks:
                self._maybe_left.discard(ask.partition)
            if dequeued.suspect:
                now = self._clock.monotonic()
                self._suspect_since = now if dequeued.taken or self._suspect_in is None else self._suspect_since
                self._suspect_in = ask.partition
            lease_ends = began + (self.settings.lease_ms - self.settings.lease_margin_ms) / 1000
            runs = [Run(taken, lease_ends, self._outbox) for taken in dequeued.taken if taken.token not in self.in_hand]
            for run in runs:
                self.in_hand[run.token] = run
            if runs:
                self.empty.clear()
            self._slots.add(runs)
            if dequeued.admin:
                self._on_admin(ask.partition, dequeued.admin)

    # ── hearing what came of it ──────────────────────────────────────────────────────────────────────────────

    def _hear(self, said: Sent, ended: Sent) -> None:
        for requests, reply in said:
            if reply.error is None:
                answer_requests([(requests, reply)])
            elif not isinstance(reply.error, StoreUnreachable):
                for request in requests:
                    request.pending.future.set_exception(reply.error)
        for runs, reply in ended:
            if reply.error is None:
                for run, result in zip(runs, reply.value, strict=True):
                    self._heard_of(run, result)
            elif not isinstance(reply.error, StoreUnreachable):
                for run in runs:
                    self.let_go(run.token)
                log.error("%d outcomes were refused: %s", len(runs), reply.error)

    def _heard_of(self, run: Run, result: Result) -> None:
        """The store has the outcome; or a verdict came first, and the run has to end with that."""
        if result.code == "VERDICT":
            run.verdict = verdict_in(result)
            self._slots.add_first(run)
            return
        if result.code not in TAKEN and result.code not in SOMEBODY_ELSES and not isinstance(run.move, Park):
            # Another run would come to the same: an operator is told now, not after attempts_max leases.
            log.error("%s: the outcome was refused: %s %s", run.tx_id, result.code, result.text)
            reason = f"the store refused what followed its last step: {result.code} {result.text}"
            run.move, run.state = Park(reason, Event("continue")), b""
            self._outbox.post(run)
            return
        self.let_go(run.token)
        if result.code in TAKEN:
            if run.taken.parent:
                self._on_branch_ended()
            wake_in_ms = getattr(run.move, "wake_in_ms", None)
            if wake_in_ms is not None and result.code == "OK":
                self._on_sleep(wake_in_ms)
            if result.code == "WOKEN":
                self.look()
        elif result.code in SOMEBODY_ELSES:
            log.warning("%s: the outcome came too late: %s %s", run.tx_id, result.code, result.text)
        else:
            log.error("%s can't be parked: %s %s", run.tx_id, result.code, result.text)
