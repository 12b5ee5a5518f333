"""An engine on paper: the model decides, dicts and lists stand for the store, and a script for each step's code.

What scripts do to a transaction is done here in the fewest words (requeue, sleep, fork, complete, park, a verdict, the
counting of branches); nothing here knows what follows a step. A run may be interrupted as real ones are: by a verdict
that it sees, by one that it hears of when it stores its outcome, and by the loss of its lease.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from made import LIMITS, NOW

from datp.errors import NotFound
from datp.model.event import Event
from datp.model.flow import FlowEntry
from datp.model.ids import (
    NodeGroup,
    NodeId,
    Partition,
    PipelineName,
    PipelineVersion,
    TransactionId,
    new_transaction_id,
)
from datp.model.limits import Limits
from datp.model.next_move import (
    BranchResult,
    Complete,
    Fork,
    Here,
    Joined,
    Move,
    Park,
    Requeue,
    RunStep,
    Sleep,
    Verdict,
    branch_result,
    conclude_by_verdict,
    first_move,
    new_transaction,
    next_move,
    undo_group,
)
from datp.model.outcome import Calls, Ended, Forks, Poisoned, RunResult, Sleeps
from datp.model.pipeline import PinnedPipeline, PipelineDefinition, StepDefinition, parse_pipeline
from datp.model.status import FINAL, UNDONE, Status
from datp.model.transaction import (
    NULL,
    Transaction,
    decode_transaction,
    encode_final,
    encode_transaction,
    step_id,
)

CANCEL: Final = Verdict(Status.CANCELLED, "enough")
MOVES_MAX: Final = 5_000
"""Of one world; whatever takes longer goes round in a circle."""

RETRIES_MAX: Final = 40
"""Of one transaction: each of its undos may be parked, and more than once."""


@dataclass
class Paper:
    """A transaction as the store has it."""

    tx_id: TransactionId
    state: bytes
    event: Event
    group: str
    parent: str = ""
    phase: str = "queued"
    verdict: Verdict | None = None
    undo_group: str = ""
    undoing: str = ""
    joined: bool = False
    need: int = 0
    order: list[str] = field(default_factory=list)
    results: dict[str, bytes] = field(default_factory=dict)
    settled: bool = False
    final: Complete | None = None
    reason: str = ""

    @property
    def document(self) -> Transaction:
        document = decode_transaction(self.state)
        if self.final:
            document.take_back_output(self.final.output)
        return document


@dataclass
class Session:
    """One run of a transaction, from its taking to its outcome: what was decided on, for the replay."""

    heard: list[tuple[int, RunResult | Verdict]] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)


class LeaseLost(Exception):
    """The run is over, and nothing of it since the last checkpoint is stored."""


class World:
    """Pipelines, transactions, and a chance that decides who is next and what goes wrong."""

    def __init__(
        self,
        pipelines: list[dict[str, Any]],
        chance: random.Random,
        *,
        limits: Limits = LIMITS,
        trouble: float = 0.0,
        settles: bool = True,
    ) -> None:
        self.limits = limits
        self.chance = chance
        self.trouble = trouble
        """How often something goes wrong: a cancel, a lost lease."""
        self.settles = settles
        """Whether branches that a join doesn't need any more are cancelled."""
        self.papers: dict[str, Paper] = {}
        self.moves: list[tuple[str, Move]] = []
        self.completed: list[tuple[str, str]] = []
        """(transaction, step) of stored completions that can be undone, in their order."""
        self.undone: list[tuple[str, str]] = []
        """(transaction that undid it, step) of stored undos, in their order."""
        self.runs: Counter[str] = Counter()
        """How often each step's code ran."""
        self.inputs: dict[str, bytes] = {}
        """What each step was given."""
        self.began_to_undo: dict[str, str] = {}
        self.now_ms = NOW
        self._definitions: dict[tuple[str, str], PipelineDefinition] = {}
        self._active: dict[str, str] = {}
        for data in pipelines:
            self.activate(data)

    # ── pipelines ────────────────────────────────────────────────────────────────────────────────────────────

    def activate(self, data: dict[str, Any]) -> PipelineDefinition:
        """From now on this version is the active one."""
        definition = parse_pipeline(data, self.limits)
        self._definitions[definition.name, definition.version] = definition
        self._active[definition.name] = definition.version
        return definition

    def definition(self, name: str, version: str) -> PipelineDefinition:
        return self._definitions[name, version]

    def pin(self, name: str, pinned: dict[str, str]) -> PinnedPipeline:
        """As Definitions.pin decides it."""
        version = pinned.get(name) or self._active.get(name)
        if version is None:
            raise NotFound(f"There is no pipeline {name}")
        definition = self._definitions[name, version]
        return PinnedPipeline(PipelineName(name), PipelineVersion(version), definition.group, definition.deadline_ms)

    # ── a transaction's life ─────────────────────────────────────────────────────────────────────────────────

    def start(self, name: str, given: Any = None) -> Paper:
        pipeline = self.pin(name, {})
        tx_id = new_transaction_id(Partition(5), self.now_ms, len(self.papers))
        state = encode_transaction(new_transaction(pipeline, msgspec.json.encode(given), {"lang": "EN"}, self.now_ms))
        return self._keep(Paper(tx_id, state, Event("start"), pipeline.group))

    def _keep(self, paper: Paper) -> Paper:
        self.papers[paper.tx_id] = paper
        return paper

    def run_all(self, *, retry_parked: bool = True) -> None:
        """Everything goes on until nothing can; what is parked is retried, more often than it has steps to undo."""
        retries: Counter[str] = Counter()
        while True:
            assert len(self.moves) < MOVES_MAX, "it never ends"
            ready = [p for p in self.papers.values() if p.phase in ("queued", "sleeping")]
            if retry_parked:
                ready += [p for p in self.papers.values() if p.phase == "exception" and retries[p.tx_id] < RETRIES_MAX]
            if not ready:
                break
            paper = self.chance.choice(ready)
            if self._goes_wrong():
                joining = [p for p in self.papers.values() if p.phase == "joining" and p.results]
                self.cancel(self.chance.choice(joining or list(self.papers.values())))
            elif paper.phase == "queued":
                self.take(paper)
            else:
                retries[paper.tx_id] += paper.phase == "exception"
                paper.phase = "queued"

    def take(self, paper: Paper) -> None:
        """A node runs it."""
        assert paper.phase == "queued"
        paper.phase = "running"
        try:
            self._run(paper)
        except LeaseLost:
            paper.phase = "queued"

    def cancel(self, paper: Paper, verdict: Verdict = CANCEL) -> None:
        """The verdict is stored, if none was and it doesn't undo, and enforced where the transaction is at rest."""
        if paper.phase in ("complete", "running") or paper.undoing or paper.verdict:
            return
        paper.verdict = verdict
        if paper.phase == "joining":
            self._settle(paper)
        else:
            self._conclude(paper)

    def _conclude(self, paper: Paper) -> None:
        assert paper.verdict
        if paper.undo_group:
            paper.phase, paper.event, paper.group = "queued", Event("verdict"), NodeGroup(paper.undo_group)
        else:
            result = BranchResult(paper.verdict.status, note=paper.verdict.note)
            self._finish(paper, Complete(paper.verdict.status, NULL, paper.verdict.note), result)

    def _finish(self, paper: Paper, end: Complete, left: BranchResult) -> None:
        paper.phase, paper.final = "complete", end
        if not paper.parent:
            return
        parent = self.papers[paper.parent]
        parent.results[paper.tx_id] = msgspec.json.encode(left)
        if left.undo:
            parent.undo_group = parent.undo_group or parent.group
        statuses = [msgspec.json.decode(result, type=BranchResult).status for result in parent.results.values()]
        open_ = len(parent.order) - len(statuses)
        if open_ == 0:
            parent.joined = True
            if parent.verdict:
                self._conclude(parent)
            else:
                parent.phase = "queued"
        elif self.settles:
            won = statuses.count(Status.SUCCESS)
            if parent.need and (won >= parent.need or won + open_ < parent.need):
                self._settle(parent)

    def _settle(self, parent: Paper) -> None:
        """Branches that still run are cancelled."""
        if parent.settled:
            return
        parent.settled = True
        for branch in [self.papers[tx_id] for tx_id in parent.order if tx_id not in parent.results]:
            self.cancel(branch, Verdict(Status.CANCELLED, "decided without it"))

    # ── a run ────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, paper: Paper) -> None:
        """One event is run, and its outcome stored; then it is run again from what was stored, and is the same."""
        stored, event, given_verdict = paper.state, paper.event, paper.verdict
        joined, joined_again = self._joined(paper), self._joined(paper)
        session = Session()
        transaction = decode_transaction(stored)
        answers = self._live(paper, session, transaction)
        move, state = self._drive(paper, transaction, event, given_verdict, joined, answers, session)
        while (verdict := self._verdict_against(paper, transaction, move)) is not None:
            # The outcome came second. In memory the document is whole, whatever was stored of it.
            session.heard.append((self._tick(), verdict))
            move = conclude_by_verdict(transaction, verdict, self._here(paper, session.heard[-1][0]))
            move, state = self._go_on(paper, transaction, move, answers, session)
        replayed = decode_transaction(stored)
        again, state_again = self._drive(paper, replayed, event, given_verdict, joined_again, iter(session.heard), None)
        assert (again, state_again) == (move, state), f"{paper.tx_id}: a rerun from what was stored differs"
        self._store(paper, transaction, move, state, session)

    def _drive(
        self,
        paper: Paper,
        transaction: Transaction,
        event: Event,
        verdict: Verdict | None,
        joined: Joined | None,
        answers: Iterator[tuple[int, RunResult | Verdict]],
        session: Session | None,
    ) -> tuple[Move, bytes]:
        """The event's moves, up to the one that ends the run."""
        now_ms = self.now_ms if session else self._replayed_from
        self._replayed_from = now_ms
        move = first_move(transaction, event, self._here(paper, now_ms), verdict=verdict, joined=joined)
        move, state = self._go_on(paper, transaction, move, answers, session)
        if session is None:
            for now_ms, late in answers:
                assert isinstance(late, Verdict)
                move = conclude_by_verdict(transaction, late, self._here(paper, now_ms))
                move, state = self._go_on(paper, transaction, move, answers, None)
        return move, state

    def _go_on(
        self,
        paper: Paper,
        transaction: Transaction,
        move: Move,
        answers: Iterator[tuple[int, RunResult | Verdict]],
        session: Session | None,
    ) -> tuple[Move, bytes]:
        while isinstance(move, RunStep):
            if session is not None:
                self.moves.append((paper.tx_id, move))
                if move.checkpoint and not self._checkpoint(paper, transaction, move, session):
                    assert paper.verdict
                    session.heard.append((self._tick(), paper.verdict))
                    now_ms, answer = session.heard[-1]
                else:
                    self._asked = move.at
                    now_ms, answer = next(answers)
            else:
                now_ms, answer = next(answers)
            here = self._here(paper, now_ms)
            if isinstance(answer, Verdict):
                move = conclude_by_verdict(transaction, answer, here)
            else:
                entry = transaction.flow[move.at]
                entry.ts2 = entry.ts2 or now_ms - 1
                entry.node_id = here.node_id
                move = next_move(transaction, move.at, answer, here, self._step_of(transaction, entry))
        state = encode_final(transaction) if isinstance(move, Complete) else encode_transaction(transaction)
        return move, state

    def _live(
        self, paper: Paper, session: Session, transaction: Transaction
    ) -> Iterator[tuple[int, RunResult | Verdict]]:
        """What the code of the steps that are asked for comes to; and what comes between."""
        while True:
            entry = transaction.flow[self._asked]
            if self._goes_wrong():
                if self.chance.random() < 0.5:
                    raise LeaseLost
                if not paper.undoing and not paper.verdict:
                    paper.verdict = CANCEL
                    if not transaction.undo and self.chance.random() < 0.5:
                        session.heard.append((self._tick(), CANCEL))
                        yield session.heard[-1]
                        continue
            result = self._code(transaction, entry, step_id(paper.tx_id, entry))
            if self._goes_wrong() and self.chance.random() < 0.5:
                raise LeaseLost
            if isinstance(result, Ended) and result.status == Status.SUCCESS:
                if entry.undo_of >= 0:
                    session.undone.append(step_id(paper.tx_id, transaction.flow[entry.undo_of]))
                elif result.undoable:
                    session.completed.append(step_id(paper.tx_id, entry))
            session.heard.append((self._tick(), result))
            yield session.heard[-1]

    def _code(self, transaction: Transaction, entry: FlowEntry, key: str) -> RunResult:
        """The step runs: its definition says what it does the first time, the second time, and so on."""
        step = self._step_of(transaction, entry)
        given = transaction.input_of(entry)
        self.inputs[key] = given
        if entry.undo_of < 0 and (step.pipeline or step.parallel):
            return self._call_out(transaction, step)
        said = step.with_.get("undoes", ["ok"]) if entry.undo_of >= 0 else step.with_["does"]
        does = said[min(self.runs[key], len(said) - 1)]
        self.runs[key] += 1
        what, _, more = does.partition(":")
        match what:
            case "ok":
                output = msgspec.json.encode({"step": step.id, "got": msgspec.Raw(given)})
                return Ended(Status.SUCCESS, output, undoable=is_undoable_type(step.step) and entry.undo_of < 0)
            case "pass":
                return Ended(Status.SUCCESS, b"", undoable=is_undoable_type(step.step) and entry.undo_of < 0)
            case "echo":
                return Ended(Status.SUCCESS, given, undoable=is_undoable_type(step.step) and entry.undo_of < 0)
            case "fail":
                return Ended(Status.FAILED, b'"failed"', f"{step.id} failed")
            case "abort":
                return Ended(Status.ABORTED, b'"aborted"', f"{step.id} aborted")
            case "raise":
                return Ended(Status.INTERNAL_ERROR, NULL, f"{step.id} raised", retryable=True)
            case "slow":
                return Ended(Status.TIMEOUT, NULL, f"{step.id} was slow", retryable=True)
            case "sleep":
                return Sleeps(int(more or 10))
            case "nap":
                return Sleeps(None)
            case "wait":
                return Sleeps(None, "go", "1", "waits")
            case "poison":
                return Poisoned("there is no such step type")
            case "call":
                return Calls(self.pin(more, transaction.versions))
            case "fork":
                wanted = [(self.pin(name, transaction.versions), b"") for name in more.split(",")]
                return Forks(wanted, len(wanted), "all")
            case "rounds":
                # Twice, and each time it is told what came of it.
                done = msgspec.json.decode(entry.saved) if bytes(entry.saved) else 0
                assert bool(bytes(entry.joined)) == (done > 0), "a run after a join is told of it, and no other"
                if done == 2:
                    output = msgspec.json.encode({"step": step.id, "got": msgspec.Raw(given)})
                    return Ended(Status.SUCCESS, output, undoable=is_undoable_type(step.step))
                wanted = [(self.pin(name, transaction.versions), b"") for name in more.split(",")]
                return Forks(wanted, 0, "settled", again=True, saved=str(done + 1).encode())
        raise AssertionError(f"a step can't {does!r}")

    def _call_out(self, transaction: Transaction, step: StepDefinition) -> RunResult:
        if step.pipeline:
            return Calls(self.pin(step.pipeline, transaction.versions))
        assert step.parallel
        wanted = [
            (
                self.pin(branch.pipeline, transaction.versions),
                b"" if branch.input is msgspec.UNSET else msgspec.json.encode(branch.input),
            )
            for branch in step.parallel.branches
        ]
        return Forks(wanted, step.parallel.need(), str(step.parallel.join))

    def _step_of(self, transaction: Transaction, entry: FlowEntry) -> StepDefinition:
        if entry.of:
            name, _, version = entry.of.partition("@")
        else:
            pipeline = transaction.flow[entry.p]
            name, version = pipeline.name, pipeline.pipeline_version
        definition = self.definition(name, version)
        return definition.steps[definition.index_of[entry.name]]

    def _here(self, paper: Paper, now_ms: int) -> Here:
        return Here(
            tx_id=paper.tx_id,
            node_group=NodeGroup(paper.group),
            node_id=NodeId(f"n-{paper.group}"),
            now_ms=now_ms,
            limits=self.limits,
            pipeline=self.definition,
        )

    def _joined(self, paper: Paper) -> Joined | None:
        if not paper.joined:
            return None
        return Joined(paper.need, [msgspec.json.decode(paper.results[i], type=BranchResult) for i in paper.order])

    def _tick(self) -> int:
        self.now_ms += 2
        return self.now_ms

    def _goes_wrong(self) -> bool:
        return self.trouble > 0 and self.chance.random() < self.trouble

    # ── storing ──────────────────────────────────────────────────────────────────────────────────────────────

    def _verdict_against(self, paper: Paper, transaction: Transaction, move: Move) -> Verdict | None:
        """A verdict that was stored meanwhile, unless this write goes where it leads."""
        if paper.verdict is None or paper.undoing:
            return None
        leads_to = transaction.undo.status if transaction.undo else ""
        if isinstance(move, Complete):
            leads_to = move.status
        return None if leads_to == paper.verdict.status else paper.verdict

    def _checkpoint(self, paper: Paper, transaction: Transaction, move: RunStep, session: Session) -> bool:
        """Stores the state before the step runs; false when a verdict came first."""
        if self._verdict_against(paper, transaction, move):
            return False
        entry = transaction.flow[move.at]
        self._write(paper, transaction, encode_transaction(transaction), session)
        paper.event = Event("undo" if entry.undo_of >= 0 else "continue", move.at)
        return True

    def _store(self, paper: Paper, transaction: Transaction, move: Move, state: bytes, session: Session) -> None:
        self.moves.append((paper.tx_id, move))
        left = branch_result(transaction, paper.tx_id, move) if isinstance(move, Complete) else None
        self._write(paper, transaction, state, session)
        match move:
            case Complete():
                assert left is not None
                self._finish(paper, move, left)
            case Requeue():
                paper.phase, paper.event, paper.group = "queued", move.event, move.group
            case Sleep():
                assert move.wake_in_ms is not None or move.switch, "it would sleep for ever"
                paper.phase, paper.event, paper.group = "sleeping", move.event, move.group
            case Park():
                paper.phase, paper.event, paper.reason = "exception", move.event, move.reason
            case Fork():
                paper.phase, paper.event, paper.group = "joining", move.event, move.group
                paper.need, paper.results, paper.settled = move.need, {}, False
                paper.order = [branch.tx_id for branch in move.branches]
                for branch in move.branches:
                    assert branch.tx_id not in self.papers, "a branch has the id of another"
                    self._keep(
                        Paper(branch.tx_id, branch.state, Event("start"), branch.pipeline.group, parent=paper.tx_id)
                    )

    def _write(self, paper: Paper, transaction: Transaction, state: bytes, session: Session) -> None:
        check_growth(paper.state, transaction)
        paper.state, paper.joined = state, False
        paper.undo_group = undo_group(transaction)
        if transaction.undo:
            assert self.began_to_undo.setdefault(paper.tx_id, transaction.undo.status) == transaction.undo.status
            paper.undoing = transaction.undo.status
        self.completed += [(paper.tx_id, key) for key in session.completed]
        self.undone += [(paper.tx_id, key) for key in session.undone]
        session.completed, session.undone = [], []


def is_undoable_type(step_type: str) -> bool:
    return step_type.startswith("do/")


def check_growth(before: bytes, after: Transaction) -> None:
    """Entries never move, and one that has ended never changes."""
    for old, new in zip(decode_transaction(before).flow, after.flow, strict=False):
        place = (old.i, old.p, old.path, old.name, old.type, old.undo_of, old.step_id, old.ts1, old.input_ref)
        assert place == (new.i, new.p, new.path, new.name, new.type, new.undo_of, new.step_id, new.ts1, new.input_ref)
        assert old.ts2 in (0, new.ts2)
        assert old.is_open or old == new, f"entry {old.i} had ended, and changed: {old} {new}"
    assert len(after.flow) >= len(decode_transaction(before).flow)


def check_order(transaction: Transaction) -> None:
    """Times go forward, and what was undone was undone once, newest first."""
    for entry in transaction.flow:
        times = [time for time in (entry.ts1, entry.ts2, entry.ts3) if time]
        assert times == sorted(times), entry
        assert bool(entry.ts3) == bool(entry.status), entry
    undone = [entry.undo_of for entry in transaction.flow if entry.undo_of >= 0 and entry.status == Status.SUCCESS]
    assert undone == sorted(set(undone), reverse=True), "not newest first, or twice"


def check_ids(papers: list[Paper]) -> None:
    """Every step of every transaction has an id of its own."""
    own = [
        step_id(paper.tx_id, entry)
        for paper in papers
        for entry in paper.document.flow
        if not entry.is_pipeline and not (entry.of and entry.undo_of < 0)
    ]
    assert len(own) == len(set(own)), [key for key, count in Counter(own).items() if count > 1]


def check_undone(world: World) -> None:
    """Each completed step that can be undone was undone once where its transaction's status asks for it, else not."""
    completed: dict[str, list[str]] = {}
    for tx_id, key in world.completed:
        completed.setdefault(tx_id, []).append(key)
    expected: Counter[tuple[str, str]] = Counter()

    def of(paper: Paper) -> list[str]:
        """What it did and left, its branches' included."""
        steps = list(completed.get(paper.tx_id, []))
        for branch in world.papers.values():
            if branch.parent == paper.tx_id and branch.final and branch.final.status == Status.SUCCESS:
                steps += of(branch)
        return steps

    for paper in world.papers.values():
        assert paper.final, f"{paper.tx_id} is {paper.phase}: {paper.reason}"
        assert paper.final.status in FINAL
        if paper.final.status in UNDONE:
            expected.update((paper.tx_id, key) for key in of(paper))
    assert Counter(world.undone) == expected


def pipeline(name: str, *steps: Any, group: str = "main", **more: Any) -> dict[str, Any]:
    """A definition; a step is what it does ("ok", "raise ok"), or a dict. One that is "undoable" begins with `do/`."""
    numbered = [
        {"id": f"{name}{n}", **(doing(*step.split()) if isinstance(step, str) else step)}
        for n, step in enumerate(steps, 1)
    ]
    return {"name": name, "steps": numbered, "nodeGroup": group, **more}


def doing(*does: str, undoable: bool = False, undoes: tuple[str, ...] = ("ok",), **more: Any) -> dict[str, Any]:
    """A step that does this the first time, that the second, and the last for ever."""
    step_type = "do/it" if undoable else "just/it"
    return {"step": step_type, "with": {"does": list(does), "undoes": list(undoes)}, **more}


def world_of(*pipelines: dict[str, Any], **given: Any) -> World:
    """A world in which nothing goes wrong by itself."""
    return World(list(pipelines), random.Random(0), **given)
