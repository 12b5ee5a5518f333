"""What the scripts are to do, once more, in plain Python: the state machine runs both and compares them.

A transaction is one object, and the places where it stands are fields of it; a sorted set of the store is what these
fields say of all transactions together. A dict stands for SQL.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

from driver import GO_ON, JOINED, START, VERDICT

from datp.settings import Settings

Answer = tuple[str, ...]
"""A code, and the first detail as text where it is compared."""

FINAL: Final = ("success", "failed", "aborted", "cancelled", "timeout", "internal-error")
COMPLETED: Final = "transaction.completed"


@dataclass
class Join:
    need: int
    results: dict[str, str]
    """Branch → its result, '' while it is open; in the order in which they were started."""
    won: int = 0
    settled: bool = False

    @property
    def open(self) -> list[str]:
        return [branch for branch, result in self.results.items() if not result]


@dataclass
class Tx:
    id: str
    partition: int
    version: int
    sequence: int
    group: str
    type: str
    phase: str = "queued"
    queue: str = "in"
    event: str = START
    external_id: str = ""
    request_hash: str = ""
    webhook: str = ""
    """What is told before the end: latest or all reports, statuses, all and statuses; '': nobody is told anything."""
    deadline: int | None = None
    parent: str = ""
    token: str = ""
    ended: tuple[str, str, str] | None = None
    """Token, script, result of the last run's end."""
    losses: int = 0
    together: bool = False
    """It lost a lease in the company of others that had lost one."""
    undo_group: str = ""
    undoing: str = ""
    verdict: str = ""
    asked: str = ""
    joined: bool = False
    join: Join | None = None
    woken: str = ""
    wake_switch: str = ""
    wakes_at: float = math.inf
    switches: dict[str, tuple[int, str]] = field(default_factory=dict)
    progress: str = ""
    status: str = ""
    has_ttl: bool = False
    # where it stands, with the score
    lease_ends: int | None = None
    sleeps_until: float | None = None
    due: int | None = None
    archive_at: int | None = None

    @property
    def may_time_out(self) -> bool:
        return self.deadline is not None and not self.undoing


@dataclass
class Webhook:
    """What is owed to a client: what is tried now, and what waits for it."""

    sequence: int
    kind: str
    due: int
    wants_each: bool
    attempt: int = 0
    claim: str = ""
    parked: bool = False
    behind: list[tuple[int, str]] = field(default_factory=list)

    def go_on(self, attempt: int, due: int, now: int) -> bool:
        """The next is tried; false when there is none."""
        if not self.behind:
            return False
        self.sequence, self.kind = self.behind.pop(0)
        self.attempt, self.due = (0, now) if self.kind == COMPLETED else (attempt, due)
        self.claim, self.parked = "", False
        return True


class Model:
    """One partition."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 0
        self.txs: dict[str, Tx] = {}
        self.evicted: dict[str, tuple[int, float]] = {}
        """Id → the version that SQL has, and the score in sleepingZ."""
        self.queues: dict[tuple[str, str], list[str]] = {}
        self.withdrawn: set[tuple[str, str, str]] = set()
        self.external: dict[str, tuple[str, str, bool]] = {}
        """External id → transaction, hash, whether it has a TTL."""
        self.webhooks: dict[str, Webhook] = {}
        self.shares: dict[str, int] = {}
        self.turns: dict[tuple[str, str], tuple[int, list[str]]] = {}
        self.renewed_at: int | None = None
        self.grace_until = 0
        self.grace_for: int | None = None
        self.locks = [0, 0]
        self.sql: dict[str, Tx] = {}

    # ── shared pieces ────────────────────────────────────────────────────────────────────────────────────────

    def bump(self, tx: Tx, *, seen: bool = True) -> str:
        tx.version = max(tx.version + 1, self.now)
        if seen:
            tx.sequence = tx.version
        return str(tx.version)

    def push(self, tx: Tx, queue: str, *, at_head: bool = False) -> None:
        tx.phase, tx.queue = "queued", queue
        line = self.queues.setdefault((queue, tx.group), [])
        line.insert(0 if at_head else len(line), tx.id)

    def tell_status(self, tx: Tx) -> None:
        if "statuses" in tx.webhook:
            self.owe(tx, "transaction.status")

    def withdraw(self, tx: Tx) -> None:
        place = (tx.queue, tx.group, tx.id)
        if place in self.withdrawn:
            line = self.queues[place[:2]]
            del line[len(line) - 1 - line[::-1].index(tx.id)]
        self.withdrawn.add(place)

    def missing(self, tx_id: str) -> Answer:
        if tx_id in self.evicted:
            return ("EVICTED", str(self.evicted[tx_id][0]))
        return ("NO_STATE",)

    def open_run(self, script: str, tx_id: str, token: str) -> tuple[Answer | None, Tx]:
        tx = self.txs.get(tx_id)
        if tx is None:
            return ("STALE_TOKEN" if tx_id in self.evicted else "NO_STATE",), Tx(tx_id, 0, 0, 0, "", "")
        if tx.token == token:
            return None, tx
        if tx.ended and tx.ended[:2] == (token, script):
            return ("ALREADY", tx.ended[2]), tx
        return ("STALE_TOKEN",), tx

    def verdict_against(self, tx: Tx, status: str) -> Answer | None:
        if tx.undoing:
            return None if tx.undoing == status else ("STALE_TOKEN",)
        return ("VERDICT", tx.verdict) if tx.verdict and tx.verdict != status else None

    def end_run(self, script: str, tx: Tx, answer: str = "OK") -> Answer:
        """The run is over; it has been stored."""
        tx.ended = (tx.token, script, f"{answer} {tx.version}")
        tx.token, tx.lease_ends = "", None
        return (answer, str(tx.version))

    def saved(self, tx: Tx, undo_group: str, undoing: str) -> None:
        """The run has stored its document: what it was given is used up."""
        if tx.joined:
            tx.join, tx.joined = None, False
        tx.losses, tx.undo_group, tx.undoing, tx.woken = 0, undo_group, undoing, ""
        if undoing:
            tx.due = None

    # ── a life ───────────────────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, tx: Tx, deadline_in_ms: int) -> Answer:
        if there := self.txs.get(tx.id):
            return ("ALREADY", str(there.version))
        if tx.id in self.evicted:
            return ("ALREADY", str(self.evicted[tx.id][0]))
        if tx.external_id:
            if taken := self.external.get(tx.external_id):
                return ("DUPLICATE" if taken[1] == tx.request_hash else "EXTERNAL_ID_TAKEN", taken[0])
            self.external[tx.external_id] = (tx.id, tx.request_hash, False)
        tx.version = tx.sequence = self.now
        if deadline_in_ms:
            tx.deadline = tx.due = self.now + deadline_in_ms
        self.txs[tx.id] = tx
        self.push(tx, "in")
        return ("OK", str(tx.version))

    def hear_of_nodes(self) -> None:
        if self.renewed_at is not None and self.now - self.renewed_at > self.settings.lease_ms / 2:
            self.grace_until = self.now + self.settings.lease_ms
        self.renewed_at = self.now

    def dequeue(self, group: str, node: str, lane: str, turn: int, want: int, alone: bool) -> tuple[list[Tx], bool]:
        """The taken, as they now are; and whether one that wants a node for itself was met."""
        self.hear_of_nodes()
        last, ids = self.turns.get((node, lane), (0, []))
        if last > turn:
            return [], False
        if last == turn:
            tokens = {tx_id: f"{node}.{turn}.{place}" for place, tx_id in enumerate(ids, 1)}
            return [self.txs[i] for i in ids if i in self.txs and self.txs[i].token == tokens[i]], False
        taken: list[Tx] = []
        suspect = False
        is_full = False

        def take(queue: str, most: int) -> None:
            nonlocal suspect, is_full
            line = self.queues.get((queue, group), [])
            for tx_id in line[: max(most, 0)]:
                tx = self.txs.get(tx_id)
                if tx and (tx.phase, tx.queue, tx.group) == ("queued", queue, group):
                    tried = [one for one in taken if one.losses]
                    if tx.losses:
                        suspect = True
                        if not alone or is_full or len(taken) > len(tried) or (tx.losses > 1 and tried):
                            return
                        is_full = tx.losses > 1 or len(tried) + 1 == self.settings.together_max
                    elif tried:
                        return
                    self.bump(tx)
                    taken.append(tx)
                    tx.phase, tx.token = "running", f"{node}.{turn}.{len(taken)}"
                    tx.lease_ends = self.now + self.settings.lease_ms
                    self.tell_status(tx)
                else:
                    assert (queue, group, tx_id) in self.withdrawn, "what is listed twice was withdrawn once"
                    self.withdrawn.discard((queue, group, tx_id))
                line.pop(0)

        ins, outs = len(self.queues.get(("in", group), [])), len(self.queues.get(("out", group), []))
        before, share = self.shares.get(group, 0), self.settings.in_share
        take("in", min(ins, (before + want) // share - before // share) if ins and outs else 0)
        for queue in ("out", "in"):
            if not suspect:
                take(queue, want - len(taken))
        if ins and outs:
            self.shares[group] = (before + len(taken)) % share
        if suspect and len(taken) > 1 and all(tx.losses for tx in taken):
            for tx in taken:
                tx.together = True
        if taken:
            self.turns[node, lane] = (turn, [tx.id for tx in taken])
        return taken, suspect

    def complete(self, tx_id: str, token: str, status: str, result: str) -> Answer:
        refused, tx = self.open_run("complete", tx_id, token)
        if refused or (refused := self.verdict_against(tx, status)):
            return refused
        if tx.joined:
            tx.join, tx.joined = None, False
        self.finish(tx, status, result)
        return self.end_run("complete", tx)

    def requeue(self, tx_id: str, token: str, queue: str, group: str, undo_group: str, undoing: str) -> Answer:
        refused, tx = self.open_run("requeue", tx_id, token)
        if refused or (refused := self.verdict_against(tx, undoing)):
            return refused
        self.bump(tx)
        self.saved(tx, undo_group, undoing)
        tx.group, tx.event = group, GO_ON
        self.push(tx, queue)
        self.tell_status(tx)
        return self.end_run("requeue", tx)

    def sleep(
        self, tx_id: str, token: str, wake_in_ms: int, switch: str, seen: str, undo_group: str, undoing: str
    ) -> Answer:
        refused, tx = self.open_run("sleep", tx_id, token)
        if refused or (refused := self.verdict_against(tx, undoing)):
            return refused
        self.bump(tx)
        self.saved(tx, undo_group, undoing)
        tx.phase, tx.wake_switch, tx.event = "waiting" if switch else "sleeping", switch, GO_ON
        if switch and str(tx.switches[switch][0] if switch in tx.switches else "") != seen:
            self.rouse(tx, "switch")
            return self.end_run("sleep", tx, "WOKEN")
        tx.wakes_at = self.now + wake_in_ms if wake_in_ms >= 0 else math.inf
        self.put_to_sleep(tx)
        tx.due = None
        self.tell_status(tx)
        return self.end_run("sleep", tx)

    def put_to_sleep(self, tx: Tx) -> None:
        tx.sleeps_until = min(tx.wakes_at, tx.deadline) if tx.deadline and tx.may_time_out else tx.wakes_at
        tx.archive_at = self.now + self.settings.evict_after_ms

    def fork(self, tx_id: str, token: str, branches: list[tuple[str, str, int]], need: int, undo_group: str) -> Answer:
        """branches: id, group, deadline_in_ms."""
        refused, tx = self.open_run("fork", tx_id, token)
        if refused or (refused := self.verdict_against(tx, "")):
            return refused
        self.bump(tx)
        self.saved(tx, undo_group, "")
        for branch_id, group, deadline_in_ms in branches:
            branch = Tx(branch_id, tx.partition, self.now, self.now, group, "branch", parent=tx_id)
            ends = [*([self.now + deadline_in_ms] if deadline_in_ms else []), *([tx.deadline] if tx.deadline else [])]
            branch.deadline = branch.due = min(ends) if ends else None
            self.txs[branch_id] = branch
            self.push(branch, "in")
            branch.archive_at = None if tx.archive_at is None else self.now
        tx.archive_at = None if tx.archive_at is None else self.now + 1
        tx.phase, tx.event = "joining", JOINED
        tx.join = Join(need, {branch_id: "" for branch_id, _, _ in branches})
        self.tell_status(tx)
        return self.end_run("fork", tx)

    def checkpoint(self, tx_id: str, token: str, undo_group: str, undoing: str) -> Answer:
        refused, tx = self.open_run("checkpoint", tx_id, token)
        if refused or (refused := self.verdict_against(tx, undoing)):
            return refused
        self.bump(tx, seen=bool(undoing))
        self.saved(tx, undo_group, undoing)
        tx.event, tx.archive_at = GO_ON, self.now
        return ("OK", str(tx.version))

    def report_progress(self, tx_id: str, token: str, report: str) -> Answer:
        refused, tx = self.open_run("report_progress", tx_id, token)
        if refused or (refused := self.verdict_against(tx, tx.undoing)):
            return refused
        if tx.progress == report:
            return ("SAME",)
        self.bump(tx)
        tx.progress = report
        if tx.webhook in ("latest", "all", "all statuses"):
            self.owe(tx, "transaction.progress")
        return ("OK", str(tx.version))

    def park(self, tx_id: str, token: str, stores: bool, undo_group: str, undoing: str) -> Answer:
        refused, tx = self.open_run("park", tx_id, token)
        if refused or (refused := (stores and self.verdict_against(tx, undoing)) or None):
            return refused
        self.bump(tx)
        if stores:
            self.saved(tx, undo_group, undoing)
            tx.event = GO_ON
        tx.losses = 0
        tx.phase = "exception"
        self.tell_status(tx)
        return self.end_run("park", tx)

    def give_back(self, tx_id: str, token: str) -> Answer:
        refused, tx = self.open_run("give_back", tx_id, token)
        if refused:
            return refused
        self.bump(tx)
        self.push(tx, tx.queue, at_head=True)
        self.tell_status(tx)
        return self.end_run("give_back", tx)

    def renew(self, tx_id: str, token: str) -> Answer:
        tx = self.txs.get(tx_id)
        if tx is None or tx.token != token:
            return ("STALE_TOKEN" if tx else "NO_STATE",)
        tx.lease_ends = self.now + self.settings.lease_ms
        return ("OK", str(tx.lease_ends))

    # ── ending ───────────────────────────────────────────────────────────────────────────────────────────────

    def finish(self, tx: Tx, status: str, result: str) -> None:
        self.bump(tx)
        tx.phase, tx.status, tx.event = "complete", status, ""
        tx.due, tx.switches = None, {}
        tx.archive_at = self.now + self.settings.archive_delay_ms
        if tx.external_id:
            self.external[tx.external_id] = (*self.external[tx.external_id][:2], True)
        if tx.parent:
            self.count_branch(tx, status, result)
        elif tx.webhook:
            self.owe(tx, COMPLETED)

    def owe(self, tx: Tx, kind: str) -> None:
        head = self.webhooks.get(tx.id)
        if head and tx.webhook.startswith("all"):
            head.behind.append((tx.sequence, kind))
        elif head and head.claim:
            head.behind = [(tx.sequence, kind)]
        elif head and head.attempt and kind != COMPLETED:
            head.sequence, head.kind, head.parked = tx.sequence, kind, False
        else:
            self.webhooks[tx.id] = Webhook(tx.sequence, kind, self.now, tx.webhook.startswith("all"))

    def conclude(self, tx: Tx) -> None:
        if tx.undo_group:
            self.bump(tx)
            tx.event, tx.group = VERDICT, tx.undo_group
            self.push(tx, "out")
            self.tell_status(tx)
            return
        if tx.joined:
            tx.join, tx.joined = None, False
        self.finish(tx, tx.verdict, "by verdict")

    def count_branch(self, branch: Tx, status: str, result: str) -> None:
        parent = self.txs.get(branch.parent)
        join = parent.join if parent else None
        if not parent or not join or join.results.get(branch.id) != "":
            return
        join.results[branch.id] = result
        join.won += status == "success"
        if '"undo":[' in result:
            parent.undo_group = parent.undo_group or parent.group
        if not join.open:
            parent.joined = True
            if parent.verdict:
                self.conclude(parent)
            else:
                self.bump(parent)
                self.push(parent, "out")
                self.tell_status(parent)
        elif join.need and (join.won >= join.need or join.won + len(join.open) < join.need):
            self.settle(join)

    def settle(self, join: Join) -> None:
        if not join.settled:
            join.settled = True
            for branch in (self.txs[branch_id] for branch_id in join.open):
                if not branch.undoing and not branch.verdict:
                    branch.verdict, branch.due = "cancelled", self.now

    def apply_verdict(self, tx_id: str, status: str, *, enforce: bool) -> Answer:
        tx = self.txs.get(tx_id)
        if tx is None:
            return self.missing(tx_id)
        if tx.phase == "complete":
            return ("FINAL", tx.status)
        if tx.undoing:
            return ("UNDOING", tx.undoing)
        if tx.verdict and not enforce:
            return ("ALREADY", tx.verdict)
        tx.verdict = tx.verdict or status
        if tx.phase == "running" and tx.asked != tx.token:
            tx.asked, tx.due = tx.token, self.now + self.settings.cancel_grace_ms
            return ("ASKED", tx.verdict)
        tx.due = None
        if tx.phase == "joining":
            assert tx.join
            self.settle(tx.join)
            return ("ASKED", tx.verdict)
        was_running = tx.phase == "running"
        if was_running:
            tx.token, tx.lease_ends, tx.ended = "", None, None
        elif tx.phase == "queued":
            self.withdraw(tx)
        elif tx.phase in ("sleeping", "waiting"):
            tx.sleeps_until = tx.archive_at = None
        self.conclude(tx)
        return ("FENCED" if was_running else "OK", tx.verdict)

    def cancel(self, tx_id: str) -> Answer:
        return self.apply_verdict(tx_id, "cancelled", enforce=False)

    # ── switches and waking ──────────────────────────────────────────────────────────────────────────────────

    def set_switch(self, tx_id: str, name: str, value: str) -> Answer:
        tx = self.txs.get(tx_id)
        if tx is None:
            return self.missing(tx_id)
        if tx.phase == "complete":
            return ("FINAL", tx.status)
        old = tx.switches.get(name)
        if (old[1] if old else "") == value:
            return ("SAME",)
        self.bump(tx, seen=False)
        if value:
            tx.switches[name] = (tx.version, value)
        else:
            del tx.switches[name]
        if tx.phase == "waiting" and tx.wake_switch == name:
            return ("WOKEN", self.rouse(tx, "switch"))
        return ("OK", str(tx.version))

    def rouse(self, tx: Tx, why: str) -> str:
        self.bump(tx)
        tx.woken, tx.wake_switch, tx.sleeps_until, tx.archive_at = why, "", None, None
        if tx.may_time_out and not tx.verdict:
            tx.due = tx.deadline
        self.push(tx, "in")
        self.tell_status(tx)
        return str(tx.version)

    def wake(self, tx_id: str) -> Answer:
        tx = self.txs.get(tx_id)
        if tx is None:
            return self.missing(tx_id)
        if tx.phase not in ("sleeping", "waiting"):
            return ("NOT_ASLEEP", tx.phase)
        return ("WOKEN", self.rouse(tx, "operator"))

    def wake_due(self, want: int) -> list[Answer]:
        scores = {tx.id: tx.sleeps_until for tx in self.txs.values() if tx.sleeps_until is not None}
        scores |= {tx_id: score for tx_id, (_, score) in self.evicted.items()}
        return [(tx_id, *self._wake_one(tx_id)) for tx_id in _first(scores, self.now, want)]

    def _wake_one(self, tx_id: str) -> Answer:
        if tx_id in self.evicted:
            version = self.evicted[tx_id][0]
            self.evicted[tx_id] = (version, self.now + self.settings.wake_claim_ms)
            return ("EVICTED", str(version))
        tx = self.txs[tx_id]
        if tx.deadline is not None and tx.deadline <= self.now and tx.may_time_out:
            return ("TIMEOUT", self.apply_verdict(tx_id, "timeout", enforce=True)[1])
        self.rouse(tx, "time")
        return ("WOKEN", "")

    # ── reaping ──────────────────────────────────────────────────────────────────────────────────────────────

    def reap(self, want: int) -> list[Answer]:
        said: list[Answer] = []
        settings = self.settings
        if (
            self.renewed_at is not None
            and self.now - self.renewed_at > settings.lease_ms / 2
            and self.grace_for != self.renewed_at
        ):
            self.grace_until, self.grace_for = self.now + settings.lease_ms, self.renewed_at
        if self.now >= self.grace_until:
            leases = {tx.id: tx.lease_ends for tx in self.txs.values() if tx.lease_ends is not None}
            for tx_id in reversed(_first(leases, self.now, want)):
                said.append(self._lease_lost(self.txs[tx_id]))
        else:
            said.append(("", "GRACE", str(self.grace_until)))
        dues = {tx.id: tx.due for tx in self.txs.values() if tx.due is not None}
        for tx_id in _first(dues, self.now, want):
            answer = self.apply_verdict(tx_id, "timeout", enforce=True)
            if answer[0] in ("ASKED", "FENCED", "OK"):
                said.append((tx_id, *answer))
            elif answer[0] in ("FINAL", "UNDOING"):
                self.txs[tx_id].due = None
        return said

    def _lease_lost(self, tx: Tx) -> Answer:
        tx.lease_ends, tx.token = None, ""
        tx.losses += 1
        tx.together = tx.together and tx.losses > 1
        self.bump(tx)
        if tx.losses > self.settings.attempts_max + tx.together:
            tx.phase = "exception"
            self.tell_status(tx)
            return (tx.id, "PARKED", str(tx.losses))
        tx.ended = None
        self.push(tx, tx.queue, at_head=True)
        self.tell_status(tx)
        return (tx.id, "REQUEUED", str(tx.losses))

    # ── operators ────────────────────────────────────────────────────────────────────────────────────────────

    def retry(self, tx_id: str) -> Answer:
        tx = self.txs.get(tx_id)
        if tx is None or tx.phase != "exception":
            return ("NOT_PARKED", tx.phase) if tx else ("NO_STATE",)
        self.bump(tx)
        tx.losses = 0
        self.push(tx, tx.queue)
        self.tell_status(tx)
        return ("OK", str(tx.version))

    def end_parked(self, tx_id: str, status: str) -> Answer:
        tx = self.txs.get(tx_id)
        if tx is None or tx.phase != "exception":
            return ("NOT_PARKED", tx.phase) if tx else ("NO_STATE",)
        if tx.joined:
            tx.join, tx.joined = None, False
        self.finish(tx, status, "by an operator")
        return ("OK", str(tx.version))

    # ── to SQL and back ──────────────────────────────────────────────────────────────────────────────────────

    def archive(self, want: int, acknowledged: list[tuple[str, int, bool]]) -> tuple[list[Answer], list[str]]:
        answers = [self._acknowledge(*one) for one in acknowledged]
        settings = self.settings
        if self.locks[0] <= self.now < self.locks[1]:
            return answers, []
        self.locks = [self.now + settings.archive_lock1_ms, self.now + settings.archive_lock2_ms]
        marked = {tx.id: tx.archive_at for tx in self.txs.values() if tx.archive_at is not None}
        claimed = _first(marked, self.now, want)
        for tx_id in claimed:
            self.txs[tx_id].archive_at = self.now + settings.archive_claim_ms
            self.sql[tx_id] = deepcopy(self.txs[tx_id])
        return answers, claimed

    def _acknowledge(self, tx_id: str, version: int, evict: bool) -> Answer:
        tx = self.txs.get(tx_id)
        if tx is None:
            return ("GONE",)
        if tx.version != version:
            tx.archive_at = None if tx.archive_at is None else self.now
            return ("CHANGED", str(tx.version))
        tx.archive_at = None
        if tx.phase == "complete":
            tx.has_ttl = True
        elif tx.sleeps_until is not None and evict and not tx.parent:
            del self.txs[tx_id]
            self.evicted[tx_id] = (version, tx.sleeps_until)
            return ("EVICTED",)
        return ("OK",)

    def restore(self, tx_id: str, then_do: str, name: str, value: str) -> Answer:
        if tx_id in self.txs:
            return ("PRESENT", str(self.txs[tx_id].version))
        if tx_id not in self.evicted:
            return ("UNKNOWN",)
        version, stored = self.evicted[tx_id][0], self.sql[tx_id]
        if stored.version != version:
            return ("NEWER" if stored.version < version else "OLDER", str(version))
        del self.evicted[tx_id]
        tx = self.txs[tx_id] = deepcopy(stored)
        tx.lease_ends = tx.due = None
        self.put_to_sleep(tx)
        match then_do:
            case "due" if tx.deadline is not None and tx.deadline <= self.now and tx.may_time_out:
                self.apply_verdict(tx_id, "timeout", enforce=True)
                return ("TIMEOUT",)
            case "due" | "wake":
                return ("WOKEN", self.rouse(tx, "time" if then_do == "due" else "operator"))
            case "switch":
                return self.set_switch(tx_id, name, value)
            case "cancel":
                return self.cancel(tx_id)
        return ("OK", str(version))

    def adopt(self, tx_id: str, version: int) -> Answer:
        stored = deepcopy(self.sql[tx_id])
        old = self.txs.get(tx_id)
        held = old.version if old else self.evicted.get(tx_id, (0,))[0]
        if held >= version:
            return ("OLDER", str(held))
        if old and old.phase == "queued":
            self.withdraw(old)
        self.evicted.pop(tx_id, None)
        tx = self.txs[tx_id] = stored
        tx.version, tx.token, tx.ended, tx.lease_ends, tx.sleeps_until, tx.due = version, "", None, None, None, None
        tx.archive_at = None
        if tx.external_id:
            taken = self.external.setdefault(tx.external_id, (tx_id, tx.request_hash, False))
            if taken[0] == tx_id:
                self.external[tx.external_id] = (*taken[:2], tx.phase == "complete")
        if tx.phase == "complete":
            tx.has_ttl = True
            return ("OK", str(version))
        if tx.phase in ("sleeping", "waiting"):
            self.put_to_sleep(tx)
            tx.archive_at = None if tx.parent else tx.archive_at
        if not tx.undoing:
            asleep = tx.phase in ("sleeping", "waiting")
            tx.due = self.now if tx.verdict else None if asleep else tx.deadline
        if tx.phase in ("queued", "running"):
            self.push(tx, tx.queue)
        return ("OK", str(version))

    # ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────

    def next_webhooks(
        self, want: int, claim: str, acknowledged: list[tuple[str, str, str, int]]
    ) -> tuple[list[Answer], list[str]]:
        answers = [self._sent(*one) for one in acknowledged]
        due = _first({tx_id: webhook.due for tx_id, webhook in self.webhooks.items()}, self.now, want)
        claimed = [tx_id for tx_id in due if not self.webhooks[tx_id].parked]
        for tx_id in claimed:
            webhook = self.webhooks[tx_id]
            if webhook.claim and not webhook.wants_each:
                webhook.go_on(0, self.now, self.now)
            webhook.claim, webhook.due = claim, self.now + self.settings.webhook_claim_ms
        for tx_id in due:
            if self.webhooks[tx_id].parked:
                del self.webhooks[tx_id]
        return answers, claimed

    def _sent(self, tx_id: str, claim: str, result: str, retry_in_ms: int) -> Answer:
        webhook = self.webhooks.get(tx_id)
        if webhook is None:
            return ("GONE",)
        if webhook.claim != claim:
            return ("STALE", webhook.claim)
        webhook.claim = ""
        webhook.attempt += result in ("retry", "parked")
        if result in ("retry", "postponed"):
            if not webhook.wants_each and webhook.go_on(webhook.attempt, self.now + retry_in_ms, self.now):
                return ("REPLACED",)
            webhook.due = self.now + retry_in_ms
            return ("OK",)
        if result == "parked":
            webhook.parked, webhook.due = True, self.now + self.settings.webhook_parked_ms
            return ("OK",)
        kind = webhook.kind
        if webhook.go_on(0, self.now, self.now):
            return ("REPLACED",)
        del self.webhooks[tx_id]
        return ("OK", str(int(kind == COMPLETED and not self.mark_told(tx_id))))

    def mark_told(self, tx_id: str) -> bool:
        tx = self.txs.get(tx_id)
        if tx is not None and tx.phase == "complete":
            self.bump(tx, seen=False)
            tx.has_ttl = False
            tx.archive_at = self.now if tx.archive_at is None else tx.archive_at
        return tx is not None


def _first(scores: Mapping[str, float], now: int, want: int) -> list[str]:
    """Those whose score has come, in a sorted set's order."""
    return [tx_id for score, tx_id in sorted((score, tx_id) for tx_id, score in scores.items()) if score <= now][:want]
