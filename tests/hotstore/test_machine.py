"""The real scripts on a real Valkey, beside a model in Python: whatever is done, in whatever order, they agree."""

import asyncio
import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar

import pytest
from driver import GO_ON, JOINED, flat
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from model import COMPLETED, FINAL, Answer, Model, Tx
from servers import Server

from datp.clock import HeldClock
from datp.hotstore.invariants import broken_invariants
from datp.hotstore.keys import key
from datp.hotstore.store import (
    Adopted,
    Archivable,
    ArchiveAck,
    BranchStart,
    Checkpointed,
    Completion,
    Forked,
    Parked,
    Requeued,
    Restored,
    Result,
    Sleeper,
    Start,
    Store,
    Taken,
    WebhookAck,
)
from datp.model.ids import Partition, new_transaction_id, partition_of
from datp.settings import Settings

PARTITIONS: Final = (0, 1)
GROUPS: Final = ("main", "side")
SWITCHES: Final = ("go", "a b,c.d")
SETTINGS: Final = Settings(partitions=len(PARTITIONS), in_share=3, attempts_max=2)

DEADLINES: Final = (0, 0, 0, 2_000, 10_000, 300_000)
WAKES: Final = (-1, 0, 1_000, 10_000, 200_000)
HOOKS: Final = {
    "": "",
    "latest": '{"url":"u","progress":true}',
    "all": '{"url":"u","progress":"all"}',
    "statuses": '{"url":"u","status":true}',
    "all statuses": '{"url":"u","progress":"all","status":true}',
}
WANTS: Final = (1, 1, 2, 3, 10)
PAUSES: Final = (1, 200, 1_000, 5_000, 7_000, 15_000, 30_000, 130_000)
ROUNDS_MAX: Final = 20
LIVE_MAX: Final = 10
"""With more than this many live transactions, nothing new starts: they are to meet each other."""

T = TypeVar("T")


class Machine(RuleBasedStateMachine):
    """Two partitions, two node groups, two nodes, and everything that may happen to them."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.server.flush()
        self.raw = self.server.client()
        self.loop = asyncio.Runner()
        self.clock = HeldClock()
        self.store = Store(self.server.url, SETTINGS, self.clock)
        self.loop.run(self.store.open(create=True, held=True))
        self.models = [Model(SETTINGS) for _ in PARTITIONS]
        self.ids: list[str] = []
        self.runs: list[Taken] = []
        self.turns = 0
        self.random = Random(0)
        self.is_sound = True
        """Nothing was found, so far."""
        self.last: Callable[[], None] = lambda: None
        """The last call that ended runs, or took some, so that it can be sent again."""
        self.sql: dict[str, Archivable] = {}
        self.claims: list[Archivable] = []
        self.sending: list[tuple[str, str]] = []
        """Deliveries that senders have, or had, and their claims."""
        self.told: dict[str, int] = {}
        """The newest sequence of each transaction that a sender was given."""

    def teardown(self) -> None:
        try:
            if self.is_sound:
                self.everything_ends()
        finally:
            self.loop.run(self.store.close())
            self.loop.close()

    # ── how a call is made, and compared ─────────────────────────────────────────────────────────────────────

    def call(self, name: str, *given: Any, **named: Any) -> Any:
        async def send() -> Any:
            async with self.store.turn() as turn:
                reply = getattr(turn, name)(*given, **named)
            return reply.value

        value = self.loop.run(send())
        note(f"{name} {given} {named} -> {value}"[:500])
        return value

    def model_of(self, tx_id: str) -> Model:
        return self.at(partition_of(tx_id))

    def at(self, partition: int) -> Model:
        model = self.models[partition]
        model.now = self.clock.now_ms()
        return model

    def agree(self, results: Sequence[Result], wanted: Sequence[Answer]) -> None:
        """The same codes, and the same first details where the model has one."""
        assert [_plain(result)[: len(want)] for result, want in zip(results, wanted, strict=True)] == list(wanted)

    def new_id(self, partition: int) -> str:
        tx_id = new_transaction_id(Partition(partition), self.clock.now_ms(), len(self.ids) + 1)
        self.ids.append(tx_id)
        return tx_id

    def one_of(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def any_id(self, *phases: str) -> str:
        """One of this phase if there is one, and sometimes any other."""
        fitting = [tx_id for tx_id in self.ids if self.phase(tx_id) in phases]
        return self.one_of(self.ids if not fitting or self.chance(6) else fitting)

    def phase(self, tx_id: str) -> str:
        model = self.models[partition_of(tx_id)]
        return model.txs[tx_id].phase if tx_id in model.txs else "evicted" if tx_id in model.evicted else "gone"

    def holds(self, run: Taken) -> bool:
        tx = self.models[partition_of(run.tx_id)].txs.get(run.tx_id)
        return tx is not None and tx.token == run.token

    def some_runs(self) -> list[Taken]:
        """Mostly runs that go on, and sometimes one that is over: a zombie's, or one whose reply was lost."""
        alive = [run for run in self.runs if self.holds(run)]
        over = [run for run in self.runs if not self.holds(run)][-10:]
        chosen = [self.one_of(alive) for _ in range(self.one_of([1, 1, 1, 2, 3]))] if alive else []
        if over and (not alive or self.chance(8)):
            chosen.append(self.one_of(over))
        return list({run.token: run for run in chosen}.values())

    def tx_of(self, run: Taken) -> Tx:
        return self.models[partition_of(run.tx_id)].txs.get(run.tx_id) or Tx(run.tx_id, 0, 0, 0, "", "")

    def undo_of(self, run: Taken) -> tuple[str, str]:
        """What a worker says of undoing: once begun it goes on, but for what was decided before and comes late; a
        verdict begins it, or is overlooked."""
        tx = self.tx_of(run)
        undo_group = self.one_of(["", *GROUPS])
        if tx.undoing:
            return undo_group, self.one_of([tx.undoing] * 6 + ["", "failed"])
        return (tx.group, tx.verdict or "failed") if self.chance(2 if tx.verdict else 8) else (undo_group, "")

    def ends(
        self, name: str, runs: list[Taken], items: list[Any], states: list[bytes], answers: Callable[..., Answer]
    ) -> None:
        """Sends what ends these runs, and remembers it for `send_again`."""

        def send() -> None:
            results = self.call(name, items, *([states] if states else []))
            pairs = list(zip(runs, items, strict=True))
            if name == "give_back":
                pairs, results = pairs[::-1], results[::-1]
            self.agree(results, [answers(self.model_of(run.tx_id), run, item) for run, item in pairs])

        self.last = send
        send()

    # ── what may happen next ─────────────────────────────────────────────────────────────────────────────────

    @rule(seed=st.integers(0, 2**16 - 1))
    def act(self, seed: int) -> None:
        """Something happens. One rule, so that what is likely depends on what there is; and one number for each step,
        because that spreads evenly, where many small choices would mostly repeat one another."""
        self.random = Random(seed)
        action = self.one_of([action for action, weight in self.likely().items() for _ in range(weight)])
        note(f"── {action.__name__} at {self.clock.now_ms()}")
        self.is_sound = False
        action()
        self.check()
        self.is_sound = True

    def likely(self) -> dict[Callable[[], None], int]:
        txs = [tx for model in self.models for tx in model.txs.values()]
        phases = [tx.phase for tx in txs]
        live = len(phases) - phases.count("complete")
        asleep = phases.count("sleeping") + phases.count("waiting")
        away = sum(len(model.evicted) for model in self.models)
        is_run = int("running" in phases)
        is_any = int(bool(self.ids))
        return {
            self.start: 6 if live < LIVE_MAX else 0,
            self.start_again: is_any,
            self.dequeue: 8 if "queued" in phases else 1,
            self.send_again: 2,
            self.complete: 4 * is_run,
            self.requeue: 4 * is_run,
            self.sleep: 5 * is_run,
            self.fork: 5 * is_run * (live < LIVE_MAX),
            self.park: 2 * is_run,
            self.give_back: 2 * is_run,
            self.checkpoint: 2 * is_run,
            self.report_progress: 2 * is_run,
            self.renew: 1,
            self.set_switch: 3 * is_any,
            self.cancel: 2 * is_any,
            self.wake: min(asleep, 1),
            self.operate: 3 if "exception" in phases else 0,
            self.time_passes: 4,
            self.the_clock_is_set_back: 1,
            self.wake_due: 3 if asleep or away else 1,
            self.reap: 4,
            self.all_nodes_die: 1,
            self.archive: 1,
            self.archive_all: 2 if asleep else 1,
            self.restore: 4 if away else int(bool(self.sql)),
            self.adopt: int(bool(self.sql)),
            self.memory_forgets: 1,
            self.webhooks: 3,
        }

    # ── a transaction's life ─────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._start(self.new_id(self.one_of(PARTITIONS)))

    def start_again(self) -> None:
        """The same id once more; but not one that memory has forgotten, and that would live twice."""
        tx_id = self.one_of(self.ids)
        if self.phase(tx_id) != "gone":
            self._start(tx_id)

    def _start(self, tx_id: str) -> None:
        tx = Tx(tx_id, partition_of(tx_id), 0, 0, self.one_of(GROUPS), "order", webhook=self.one_of(list(HOOKS)))
        tx.external_id = self.one_of(["", "", "e:1", "e 2"])
        tx.request_hash = self.one_of(["h1", "h1", "h2"]) if tx.external_id else ""
        hook = HOOKS[tx.webhook]
        deadline = self.one_of(DEADLINES)
        item = Start(tx_id, "acme", tx.external_id, tx.request_hash, "order", "1", tx.group, deadline, hook, "hot")
        self.agree(self.call("enqueue", [item], [b"{}"]), [self.model_of(tx_id).enqueue(tx, deadline)])

    def dequeue(self) -> None:
        filled = [
            (partition, group)
            for partition in PARTITIONS
            for (_, group), line in self.models[partition].queues.items()
            if line
        ]
        partition, group = self.one_of(filled) if filled else (0, "main")
        node, lane = self.one_of(["n1", "n2"]), self.one_of(["0", "1"])
        want, alone = self.one_of(WANTS), self.chance(2)
        self.turns += 1
        turn = self.turns

        def send() -> None:
            given = {"group": group, "node": node, "lane": lane, "turn": turn, "want": want, "alone": alone}
            dequeued = self.call("dequeue", partition, **given)
            txs, suspect = self.at(partition).dequeue(group, node, lane, turn, want, alone)
            assert [_handed(taken) for taken in dequeued.taken] == [_to_be_handed(tx) for tx in txs]
            assert dequeued.suspect == suspect
            known = {run.token for run in self.runs}
            self.runs += [taken for taken in dequeued.taken if taken.token not in known]

        self.last = send
        send()

    def send_again(self) -> None:
        """The reply was lost."""
        self.last()

    def complete(self) -> None:
        runs = self.some_runs()
        items = []
        for run in runs:
            tx = self.tx_of(run)
            ends = tx.undoing or tx.verdict
            status = ends if ends and self.chance(2) else self.one_of(FINAL)
            left = '{"undo":[1]}' if self.chance(2) else "{}"
            items.append(Completion(run.tx_id, run.token, status, "", "null", left if run.parent else ""))
        self.ends(
            "complete",
            runs,
            items,
            [b"{}"] * len(runs),
            lambda model, run, item: model.complete(run.tx_id, run.token, item.status, item.branch_result),
        )

    def requeue(self) -> None:
        runs = self.some_runs()
        queue, group = self.one_of(["in", "out"]), self.one_of(GROUPS)
        items = [Requeued(run.tx_id, run.token, queue, group, GO_ON, *self.undo_of(run), snapshot=0) for run in runs]
        self.ends(
            "requeue",
            runs,
            items,
            [b"{}"] * len(runs),
            lambda model, run, item: model.requeue(run.tx_id, run.token, queue, group, item.undo_group, item.undoing),
        )

    def sleep(self) -> None:
        runs = self.some_runs()
        switch = self.one_of(["", *SWITCHES])
        wake_in_ms = self.one_of(WAKES if switch else WAKES[1:])
        items = []
        for run in runs:
            tx = self.tx_of(run)
            # As it is now, or as the run saw it when it began.
            now = str(tx.switches[switch][0]) if switch in tx.switches else ""
            seen = run.switches.get(switch, "").partition(" ")[0] if self.chance(2) else now
            items.append(
                Sleeper(run.tx_id, run.token, wake_in_ms, switch, seen, tx.group, GO_ON, "", *self.undo_of(run))
            )
        self.ends(
            "sleep",
            runs,
            items,
            [b"{}"] * len(runs),
            lambda model, run, item: model.sleep(
                run.tx_id, run.token, wake_in_ms, switch, item.seen, item.undo_group, item.undoing
            ),
        )

    def fork(self) -> None:
        runs = self.some_runs()[:1]
        if not runs:
            return
        [run] = runs
        width = self.one_of([1, 2, 2, 3])
        need, undo_group = self.one_of(range(1, width + 1)), self.one_of(["", *GROUPS])
        group, deadline = self.one_of(GROUPS), self.one_of(DEADLINES)
        branches = [
            BranchStart(self.new_id(partition_of(run.tx_id)), "branch", "1", group, deadline, "{}")
            for _ in range(width)
        ]
        item = Forked(run.tx_id, run.token, self.tx_of(run).group, JOINED, need, undo_group, branches)
        plain = [(branch.tx_id, branch.group, branch.deadline_in_ms) for branch in branches]
        self.ends(
            "fork",
            runs,
            [item],
            [b"{}"],
            lambda model, run, item: model.fork(run.tx_id, run.token, plain, need, undo_group),
        )

    def park(self) -> None:
        runs = self.some_runs()
        stores = self.chance(2)
        items = []
        for run in runs:
            undo_group, undoing = self.undo_of(run) if stores else ("", "")
            items.append(Parked(run.tx_id, run.token, "it broke", GO_ON if stores else "", undo_group, undoing))
        self.ends(
            "park",
            runs,
            items,
            [b"{}" if stores else b""] * len(runs),
            lambda model, run, item: model.park(run.tx_id, run.token, stores, item.undo_group, item.undoing),
        )

    def give_back(self) -> None:
        runs = self.some_runs()
        items = [(run.tx_id, run.token) for run in runs]
        self.ends("give_back", runs, items, [], lambda model, run, item: model.give_back(run.tx_id, run.token))

    def checkpoint(self) -> None:
        runs = self.some_runs()
        items = [Checkpointed(run.tx_id, run.token, GO_ON, *self.undo_of(run)) for run in runs]
        results = self.call("checkpoint", items, [b"{}"] * len(runs))
        self.agree(
            results,
            [
                self.model_of(item.tx_id).checkpoint(item.tx_id, item.token, item.undo_group, item.undoing)
                for item in items
            ],
        )

    def report_progress(self) -> None:
        runs, report = self.some_runs(), self.one_of(['{"done":1}', '{"done":2}'])
        results = self.call("report_progress", [(run.tx_id, run.token, report) for run in runs])
        self.agree(results, [self.model_of(run.tx_id).report_progress(run.tx_id, run.token, report) for run in runs])

    def renew(self) -> None:
        partition = self.one_of(PARTITIONS)
        runs = [run for run in self.runs if partition_of(run.tx_id) == partition and self.chance(2)]
        model = self.at(partition)
        results = self.call("renew_leases", partition, [(run.tx_id, run.token) for run in runs])
        model.hear_of_nodes()
        self.agree(results, [model.renew(run.tx_id, run.token) for run in runs])

    # ── from outside ─────────────────────────────────────────────────────────────────────────────────────────

    def set_switch(self) -> None:
        tx_id = self.any_id("waiting", "running", "queued", "evicted")
        name, value = self.one_of(SWITCHES), self.one_of(["", "true", "1", '"x y,z"'])
        self.agree(
            self.call("set_switch", [(tx_id, name, value)]), [self.model_of(tx_id).set_switch(tx_id, name, value)]
        )

    def cancel(self) -> None:
        tx_id = self.any_id("queued", "running", "sleeping", "waiting", "joining", "exception", "evicted")
        self.agree(self.call("cancel", [(tx_id, "why not")]), [self.model_of(tx_id).cancel(tx_id)])

    def wake(self) -> None:
        tx_id = self.any_id("sleeping", "waiting")
        self.agree(self.call("wake", [tx_id]), [self.model_of(tx_id).wake(tx_id)])

    def operate(self) -> None:
        tx_id, status = self.any_id("exception"), self.one_of(FINAL)
        model = self.model_of(tx_id)
        if self.chance(3):
            self.agree(self.call("end_parked", [(tx_id, status, "")]), [model.end_parked(tx_id, status)])
        else:
            self.agree(self.call("retry", [tx_id], [b""]), [model.retry(tx_id)])

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────

    def time_passes(self) -> None:
        self.clock.advance(self.one_of(PAUSES))

    def the_clock_is_set_back(self) -> None:
        self.clock.advance(-self.one_of([1, 2_000]))

    def wake_due(self) -> None:
        partition, want = self.one_of(PARTITIONS), self.one_of(WANTS)
        swept = self.call("wake_due", partition, want)
        assert [(one.tx_id, one.what, one.detail) for one in swept.happened] == self.at(partition).wake_due(want)

    def reap(self) -> None:
        self._reap(self.one_of(PARTITIONS), self.one_of(WANTS))

    def _reap(self, partition: int, want: int) -> None:
        swept = self.call("reap", partition, want)
        assert [(one.tx_id, one.what, one.detail) for one in swept.happened] == self.at(partition).reap(want)

    def all_nodes_die(self) -> None:
        """Nobody renews in the grace either, and what they ran is taken from them."""
        for _ in range(2):
            self.clock.advance(SETTINGS.lease_ms)
            for partition in PARTITIONS:
                self._reap(partition, 100)

    # ── to SQL and back ──────────────────────────────────────────────────────────────────────────────────────

    def archive(self) -> None:
        """One turn of an archiver that is slow, and not sure what it has acknowledged."""
        partition = self.one_of(PARTITIONS)
        here = [claim for claim in self.claims if partition_of(claim.tx_id) == partition]
        stored = [self.one_of(here) for _ in range(self.one_of([0, 1, 2]))] if here else []
        evict = int(self.chance(2))
        self._archive(partition, self.one_of(WANTS), [ArchiveAck(one.tx_id, one.version, evict) for one in stored])

    def archive_all(self) -> None:
        """An archiver claims what is due, stores it and says so."""
        partition = self.one_of(PARTITIONS)
        self.clock.advance(SETTINGS.evict_after_ms + SETTINGS.archive_lock2_ms)
        claimed = self._archive(partition, 100, [])
        self._archive(partition, 1, [ArchiveAck(claim.tx_id, claim.version, 1) for claim in claimed])

    def _archive(self, partition: int, want: int, acknowledged: list[ArchiveAck]) -> list[Archivable]:
        reply = self.call("next_to_archive", partition, "a1", want, acknowledged)
        plain = [(ack.tx_id, ack.version, bool(ack.evict)) for ack in acknowledged]
        answers, claimed = self.at(partition).archive(want, plain)
        self.agree(reply.acknowledged, answers)
        assert [one.tx_id for one in reply.claimed] == claimed
        self.sql.update({one.tx_id: one for one in reply.claimed})
        self.claims = [*self.claims, *reply.claimed][-20:]
        return list(reply.claimed)

    def restore(self) -> None:
        away = [tx_id for tx_id in self.sql if self.phase(tx_id) == "evicted"]
        tx_id = self.one_of(away or list(self.sql))
        if self.phase(tx_id) == "gone":
            return
        one, then_do = self.sql[tx_id], self.one_of(["", "due", "wake", "switch", "cancel"])
        name = self.one_of(SWITCHES) if then_do in ("switch", "cancel") else ""
        value = self.one_of(["", "true", "7"]) if then_do == "switch" else ""
        fields, switches = flat(one.fields, without="state"), flat(one.switches)
        item = Restored(tx_id, one.version, fields, switches, then_do, name, value)
        self.agree(
            self.call("restore", [item], [one.fields["state"]]),
            [self.model_of(tx_id).restore(tx_id, then_do, name, value)],
        )

    def adopt(self) -> None:
        """SQL is ahead; but not of parents and branches, which would have to be adopted together."""
        tx_id = self.one_of(list(self.sql))
        model, one = self.model_of(tx_id), self.sql[tx_id]
        stored, live = model.sql[tx_id], model.txs.get(tx_id)
        if stored.phase == "joining" or stored.parent or self.phase(tx_id) in ("joining", "complete", "gone"):
            return
        version = max(one.version, (live.version if live else model.evicted[tx_id][0]) + self.one_of([0, 1, 1, 2]))
        item = Adopted(
            tx_id,
            version,
            flat(one.fields, without="state"),
            flat(one.switches),
            flat(one.join),
            stored.phase,
            stored.queue,
            stored.group,
            stored.deadline or 0,
            int(one.fields.get("wakes_at") or 0),
        )
        self.agree(self.call("adopt", [item], [one.fields["state"]]), [model.adopt(tx_id, version)])

    def memory_forgets(self) -> None:
        """Keys with a TTL are gone; the time of that is the server's, which nobody holds."""
        for model, tag in zip(self.models, self.store.tags, strict=True):
            for tx in [tx for tx in model.txs.values() if tx.has_ttl]:
                del model.txs[tx.id]
                self.raw.delete(key("state", tag, tx_id=tx.id))
            for name in [name for name, (_, _, has_ttl) in model.external.items() if has_ttl]:
                del model.external[name]
                self.raw.delete(key("external_id", tag, owner="acme", external_id=name))

    # ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────

    def webhooks(self) -> None:
        partition, want = self.one_of(PARTITIONS), self.one_of(WANTS)
        here = [sent for sent in self.sending if partition_of(sent[0]) == partition]
        result = self.one_of(["delivered", "retry", "postponed", "parked", "moved", "given_up"])
        # An end alone is parked.
        model = self.at(partition)
        sent = [self.one_of(here) for _ in range(self.one_of([0, 1, 2]))] if here else []
        if result == "parked":
            sent = [one for one in sent if one[0] in model.webhooks and model.webhooks[one[0]].kind == COMPLETED]
        acks = [WebhookAck(tx_id, claim, result, 3_000, "") for tx_id, claim in sent]
        self.turns += 1
        claim = f"s.{self.turns}"
        reply = self.call("next_webhooks", partition, want, claim, acks)
        answers, claimed = model.next_webhooks(
            want, claim, [(ack.tx_id, ack.claim, ack.result, ack.retry_in_ms) for ack in acks]
        )
        self.agree(reply.acknowledged, answers)
        assert [tx_id for tx_id, _ in reply.claimed] == claimed
        for tx_id, record in reply.claimed:
            webhook = model.webhooks[tx_id]
            assert (record["kind"].decode(), int(record["sequence"])) == (webhook.kind, webhook.sequence)
            assert int(record["attempt"]) == webhook.attempt
            # Nothing old is sent after something newer.
            assert webhook.sequence >= self.told.get(tx_id, 0)
            self.told[tx_id] = webhook.sequence
            self.sending = [*self.sending, (tx_id, claim)][-20:]

    # ── what is true after everything that happens ───────────────────────────────────────────────────────────

    def check(self) -> None:
        """The store is what the model says, and in order."""
        for tag, model in zip(self.store.tags, self.models, strict=True):
            assert _differences(_seen(self.raw, tag, model), _wanted(model)) == []
        assert self.loop.run(broken_invariants(self.store)) == []

    def everything_ends(self) -> None:
        """Nothing is stuck: when nodes take what there is, and an operator wakes and retries, all of it ends."""
        for _ in range(ROUNDS_MAX):
            for partition in PARTITIONS * 2:
                self.clock.advance(SETTINGS.lease_ms // 4)
                self.call("renew_leases", partition, [])
            for partition in PARTITIONS:
                self.call("reap", partition, 100)
                for one in self.call("wake_due", partition, 100).happened:
                    if one.what == "EVICTED":
                        self._restore(one.tx_id, "due")
                for group in GROUPS * 2:
                    self._work_off(partition, group)
            going = {tx_id: self.raw.hget(self._state_key(tx_id), "phase") for tx_id in self.ids}
            self.call("retry", *_with_bodies([tx_id for tx_id, phase in going.items() if phase == "exception"]))
            for tx_id in self.ids:
                if self.call("wake", [tx_id])[0].code == "EVICTED":
                    self._restore(tx_id, "wake")
            if set(going.values()) <= {"complete", None}:
                break
        stuck = {tx_id: phase for tx_id, phase in going.items() if phase not in ("complete", None)}
        assert stuck == {}, stuck
        assert self.loop.run(broken_invariants(self.store)) == []

    def _work_off(self, partition: int, group: str) -> None:
        """A node takes one after the other and completes it, with its verdict if it has one."""
        while True:
            self.turns += 1
            given = {"group": group, "node": "n3", "lane": "0", "turn": self.turns, "want": 1, "alone": True}
            taken: list[Taken] = self.call("dequeue", partition, **given).taken
            if not taken:
                return
            [run] = taken
            undoing = self.raw.hget(self._state_key(run.tx_id), "undoing")
            status = undoing or run.verdict or "success"
            item = Completion(run.tx_id, run.token, status, "", "null", "{}" if run.parent else "")
            assert self.call("complete", [item], [b"{}"])[0].code == "OK"

    def _restore(self, tx_id: str, then_do: str) -> None:
        one = self.sql[tx_id]
        fields, switches = flat(one.fields, without="state"), flat(one.switches)
        item = Restored(tx_id, one.version, fields, switches, then_do)
        assert self.call("restore", [item], [one.fields["state"]])[0].code in ("WOKEN", "TIMEOUT")

    def _state_key(self, tx_id: str) -> str:
        return key("state", self.store.tags[partition_of(tx_id)], tx_id=tx_id)


def _with_bodies(ids: list[str]) -> tuple[list[str], list[bytes]]:
    return ids, [b""] * len(ids)


# ── comparing ────────────────────────────────────────────────────────────────────────────────────────────────────


def _ended(join: dict[str, str]) -> dict[str, bool]:
    """Which branches have ended."""
    return {name: bool(result) for name, result in join.items() if not name.startswith(":")}


def _plain(result: Result) -> Answer:
    return (result.code, result.text)


def _handed(taken: Taken) -> tuple[Any, ...]:
    join = {name: value.decode() for name, value in taken.join.items() if name.startswith("tx-")}
    return (
        taken.tx_id,
        taken.token,
        taken.event.decode(),
        taken.losses,
        taken.verdict,
        taken.parent,
        taken.woken,
        taken.deadline_ms,
        taken.switches,
        {name: bool(result) for name, result in join.items()},
    )


def _to_be_handed(tx: Tx) -> tuple[Any, ...]:
    return (
        tx.id,
        tx.token,
        tx.event,
        tx.losses,
        tx.verdict,
        tx.parent,
        tx.woken,
        tx.deadline or 0,
        {name: f"{version} {value}" for name, (version, value) in tx.switches.items()},
        dict.fromkeys(tx.join.results, True) if tx.joined and tx.join else {},
    )


def _differences(seen: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Where the store is not what the model says."""
    found = []
    for name in wanted:
        here, there = seen[name], wanted[name]
        if isinstance(here, dict):
            keys = sorted({*here, *there}, key=str)
            found += [f"{name} {k}: {here.get(k)}, not {there.get(k)}" for k in keys if here.get(k) != there.get(k)]
        elif here != there:
            found.append(f"{name}: {here}, not {there}")
    return found


_TEXTS: Final = (
    "phase",
    "queue",
    "group",
    "event",
    "token",
    "verdict",
    "parent",
    "woken",
    "wake_switch",
    "status",
    "undo_group",
    "undoing",
)
_COMPARED: Final = (*_TEXTS, "progress", "version", "sequence", "losses", "joined")


def _hash(tx: Tx) -> list[str]:
    return [
        *(getattr(tx, name) for name in _TEXTS),
        tx.progress,
        str(tx.version),
        str(tx.sequence),
        str(tx.losses),
        "1" if tx.joined else "",
    ]


def _wanted(model: Model) -> dict[str, Any]:
    txs = model.txs.values()
    asleep = {tx.id: tx.sleeps_until for tx in txs if tx.sleeps_until is not None}
    return {
        "state": {tx.id: _hash(tx) for tx in txs},
        "switches": {tx.id: {name: f"{v} {value}" for name, (v, value) in tx.switches.items()} for tx in txs},
        "join": {tx.id: _ended(tx.join.results) if tx.join else {} for tx in txs},
        "ttl": {tx.id for tx in txs if tx.has_ttl},
        "queues": {place: line for place, line in model.queues.items() if line},
        "withdrawn": model.withdrawn,
        "processing": {tx.id: tx.lease_ends for tx in txs if tx.lease_ends is not None},
        "sleeping": asleep | {tx_id: score for tx_id, (_, score) in model.evicted.items()},
        "deadlines": {tx.id: tx.due for tx in txs if tx.due is not None},
        "to_archive": {tx.id: tx.archive_at for tx in txs if tx.archive_at is not None},
        "joining": {tx.id for tx in txs if tx.phase == "joining"},
        "exceptions": {tx.id for tx in txs if tx.phase == "exception"},
        "webhooks": {tx_id: webhook.due for tx_id, webhook in model.webhooks.items()},
        "evicted": {tx_id: str(version) for tx_id, (version, _) in model.evicted.items()},
        "external": {name: (f"{tx_id} {h}", has_ttl) for name, (tx_id, h, has_ttl) in model.external.items()},
    }


def _seen(raw: Any, tag: str, model: Model) -> dict[str, Any]:
    """The same of the store: what the model names is read by name, and all lists and sets as they are."""
    pipe = raw.pipeline(transaction=False)
    for tx_id in model.txs:
        pipe.hmget(key("state", tag, tx_id=tx_id), _COMPARED)
        pipe.hgetall(key("switches", tag, tx_id=tx_id))
        pipe.hgetall(key("join", tag, tx_id=tx_id))
        pipe.pttl(key("state", tag, tx_id=tx_id))
    places = [(queue, group) for queue in ("in", "out") for group in GROUPS]
    for queue, group in places:
        pipe.lrange(key("queue", tag, queue=queue.title(), group=group), 0, -1)
    sets = ("processing", "sleeping", "deadlines", "to_archive", "joining", "exceptions", "webhooks")
    for name in sets:
        pipe.zrange(key(name, tag), 0, -1, withscores=True)
    pipe.smembers(key("withdrawn", tag))
    pipe.hgetall(key("evicted", tag))
    for name in model.external:
        pipe.get(key("external_id", tag, owner="acme", external_id=name))
        pipe.pttl(key("external_id", tag, owner="acme", external_id=name))
    answers = iter(pipe.execute())
    seen: dict[str, Any] = {"state": {}, "switches": {}, "join": {}, "ttl": set(), "queues": {}, "external": {}}
    for tx_id in model.txs:
        values = dict(zip(_COMPARED, next(answers), strict=True))
        values["losses"] = values["losses"] or "0"
        seen["state"][tx_id] = [values[name] or "" for name in _COMPARED]
        seen["switches"][tx_id] = next(answers)
        seen["join"][tx_id] = _ended(next(answers))
        if next(answers) >= 0:
            seen["ttl"].add(tx_id)
    for place in places:
        if line := next(answers):
            seen["queues"][place] = line
    for name in sets:
        seen[name] = dict(next(answers))
    seen["joining"], seen["exceptions"] = set(seen["joining"]), set(seen["exceptions"])
    seen["withdrawn"] = {tuple(entry.split(" ")) for entry in next(answers)}
    seen["evicted"] = next(answers)
    for name in model.external:
        seen["external"][name] = (next(answers), next(answers) >= 0)
    return seen


# ── running it ───────────────────────────────────────────────────────────────────────────────────────────────────


def _run(server: Server, examples: int, length: int) -> None:
    class Here(Machine):
        pass

    Here.server = server
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples,
            stateful_step_count=length,
            deadline=None,
            print_blob=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_scripts_and_model_agree(valkey_server: Server) -> None:
    _run(valkey_server, int(os.environ.get("DATP_MACHINE_EXAMPLES", "40")), 50)


@pytest.mark.long
def test_scripts_and_model_agree_for_long(valkey_server: Server) -> None:
    _run(valkey_server, int(os.environ.get("DATP_MACHINE_EXAMPLES", "400")), 100)
