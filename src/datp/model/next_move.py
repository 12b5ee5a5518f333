"""What happens next: the only place that knows what follows an event, or the end of a step.

`first_move` takes up an event, `next_move` takes the result of a step's run; each brings the transaction's flow up to
date and returns the move. Both are pure but for the transaction, which they own: no I/O, no clock, no chance.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from datp.errors import BrokenState
from datp.model.backoff import Backoff
from datp.model.event import Event
from datp.model.flow import INPUT, NOTHING, FlowEntry, Ref
from datp.model.ids import (
    NodeGroup,
    NodeId,
    PipelineName,
    PipelineVersion,
    TransactionId,
    branch_id,
)
from datp.model.limits import Limits
from datp.model.outcome import Calls, Ended, Forks, Poisoned, RunResult, Sleeps
from datp.model.pipeline import (
    PinnedPipeline,
    PipelineDefinition,
    StepDefinition,
)
from datp.model.schema import Misfit, told
from datp.model.status import UNDONE, Status
from datp.model.transaction import NULL, Transaction, Undo, encode_transaction, step_id
from datp.model.values import printable

# ── Moves ────────────────────────────────────────────────────────────────────────────────────────────────────────


class RunStep(msgspec.Struct, frozen=True):
    """Run this entry's step, here and now."""

    at: int
    checkpoint: bool = False
    """Store the state first."""


class Complete(msgspec.Struct, frozen=True):
    """The transaction has its final status."""

    status: Status
    output: bytes
    note: str = ""


class Requeue(msgspec.Struct, frozen=True):
    """The work goes on through a queue: `in` starts, `out` returns."""

    queue: str
    group: NodeGroup
    event: Event


class Sleep(msgspec.Struct, frozen=True):
    """Nothing happens until the time comes, or the switch changes from what was seen."""

    event: Event
    group: NodeGroup
    wake_in_ms: int | None
    switch: str = ""
    seen: str = ""
    note: str = ""


class NewBranch(msgspec.Struct, frozen=True):
    """A branch to be started as a transaction of its own, in the parent's partition."""

    tx_id: TransactionId
    pipeline: PinnedPipeline
    state: bytes


class Fork(msgspec.Struct, frozen=True):
    """Branches start, and the transaction waits until they have ended."""

    event: Event
    group: NodeGroup
    need: int
    branches: list[NewBranch]


class Park(msgspec.Struct, frozen=True):
    """An operator has to look; the event says where a retry goes on."""

    reason: str
    event: Event


Move = RunStep | Complete | Requeue | Sleep | Fork | Park


# ── What a move depends on, beside the transaction ───────────────────────────────────────────────────────────────


class BranchResult(msgspec.Struct, rename="camel", omit_defaults=True):
    """What a finished branch leaves for its parent."""

    status: Status
    pipeline: str = ""
    version: str = ""
    output: msgspec.Raw = msgspec.Raw(NULL)
    note: str = ""
    undo: list[FlowEntry] = []
    """Its completed steps that can be undone, oldest first, each with its values in full."""


class Joined(msgspec.Struct):
    """The branches' results, in the order in which they were started."""

    need: int
    results: list[BranchResult]


class Here(msgspec.Struct):
    """Where and when the move is decided."""

    tx_id: TransactionId
    node_group: NodeGroup
    node_id: NodeId
    now_ms: int
    limits: Limits
    pipeline: Callable[[str, str], PipelineDefinition]
    """name, version → definition; every pinned one has been loaded."""
    chance: float = 0.5
    """In [0, 1): jitter for back-off."""


class Verdict(msgspec.Struct, frozen=True):
    """A final status that came from outside: a deadline, a cancel, an operator."""

    status: Status
    note: str = ""


def new_transaction(
    pipeline: PinnedPipeline, transaction_input: bytes, metadata: dict[str, Any], now_ms: int
) -> Transaction:
    """A transaction whose pipeline is about to be queued."""
    return Transaction(
        transaction_input=msgspec.Raw(transaction_input or NULL),
        metadata=metadata,
        versions={pipeline.name: pipeline.version},
        flow=[
            FlowEntry(
                i=0,
                name=pipeline.name,
                pipeline_version=pipeline.version,
                node_group=pipeline.group,
                ts1=now_ms,
                input_ref=INPUT,
            )
        ],
    )


# ── The decisions ────────────────────────────────────────────────────────────────────────────────────────────────


def first_move(
    transaction: Transaction,
    event: Event,
    here: Here,
    *,
    verdict: Verdict | None = None,
    joined: Joined | None = None,
) -> Move:
    """What an event asks for."""
    if not 0 <= event.at < len(transaction.flow):
        raise BrokenState(f"The event is at entry {event.at}, but the flow has {len(transaction.flow)}")
    entry = transaction.flow[event.at]
    if verdict and not transaction.undo:
        return conclude_by_verdict(transaction, verdict, here, joined)
    if event.kind == "verdict":
        return _next_undo(transaction, here) if transaction.undo else _lost_verdict()
    if not entry.is_open or entry.is_pipeline != (event.kind == "start"):
        raise BrokenState(f"The event says {event.kind} at entry {entry.i}, which is no place for that")
    match event.kind:
        case "start":
            return _start_pipeline(transaction, entry, here)
        case "continue" | "undo":
            if entry.ts2:
                entry.attempt += 1
            return RunStep(entry.i)
        case "return":
            return _child_returned(transaction, entry, here)
        case "joined":
            return _branches_joined(transaction, entry, joined, here)


def next_move(transaction: Transaction, at: int, result: RunResult, here: Here, step: StepDefinition | None) -> Move:
    """What follows the run of the step at this entry; `step` is its definition (None for a merged undo)."""
    entry = transaction.flow[at]
    match result:
        case Ended():
            if result.retryable and step and step.retry and entry.failures + 1 < step.retry.attempts_max:
                return _try_again(entry, result, step.retry.backoff, here)
            if entry.undo_of >= 0:
                return _undo_ended(transaction, entry, result, here)
            _close(transaction, entry, result.status, here, output=result.output, note=result.note)
            entry.undoable = result.undoable
            return _after_step(transaction, entry, here)
        case Sleeps():
            return _sleep(entry, result, step, here)
        case Calls():
            return _call_pipeline(transaction, entry, result, here)
        case Forks():
            return _fork(transaction, entry, result, here)
        case Poisoned():
            return Park(_note(result.reason, here), _again(entry))


def conclude_by_verdict(transaction: Transaction, verdict: Verdict, here: Here, joined: Joined | None = None) -> Move:
    """The verdict came first: whatever is open ends with it, and what was done is undone."""
    note = _note(verdict.note, here)
    last = transaction.flow[-1]
    if last.undo_of >= 0 and not last.ts2:
        # Undoing was decided on, but the verdict came before that was stored: it never began, and is decided on anew.
        transaction.flow.pop()
    open_step = next((entry for entry in reversed(transaction.flow) if entry.is_open), None)
    if joined and open_step:
        # Whose branches they are: the step that forked is the last that is open, whatever its type.
        _merge_branches(transaction, open_step, joined, here)
    for entry in transaction.flow:
        if entry.is_open:
            entry.ts3, entry.status, entry.note = here.now_ms, verdict.status, note
    root = transaction.flow[0]
    root.status, root.note = verdict.status, note
    root.output, root.output_ref = msgspec.Raw(NULL), ""
    return _conclude(transaction, here)


def branch_result(transaction: Transaction, tx_id: TransactionId, end: Complete) -> BranchResult:
    """What a branch that ends like this leaves for its parent."""
    root = transaction.flow[0]
    left = [] if end.status != Status.SUCCESS else _left_to_undo(transaction)
    return BranchResult(
        status=end.status,
        pipeline=root.name,
        version=root.pipeline_version,
        output=msgspec.Raw(end.output),
        note=end.note,
        undo=[_portable(transaction, tx_id, entry) for entry in reversed(left)],
    )


def needed_versions(transaction: Transaction, joined: Joined | None = None) -> set[tuple[str, str]]:
    """Every pipeline version that a decision may ask for: the pinned ones, and those that ended branches used."""
    needed = set(transaction.versions.items())
    left = [entry for result in joined.results for entry in result.undo] if joined else []
    for entry in (*transaction.flow, *left):
        if entry.of:
            name, _, version = entry.of.partition("@")
            needed.add((name, version))
    return needed


def undo_group(transaction: Transaction) -> str:
    """The group where undoing would begin; '' when there is nothing to undo."""
    if not any(entry.undoable for entry in transaction.flow):
        return ""
    left = _left_to_undo(transaction)
    return left[0].node_group if left else ""


# ── Pipelines and steps ──────────────────────────────────────────────────────────────────────────────────────────


def _start_pipeline(transaction: Transaction, pipeline: FlowEntry, here: Here) -> Move:
    pipeline.ts2 = here.now_ms
    pipeline.node_id = here.node_id
    definition = here.pipeline(pipeline.name, pipeline.pipeline_version)
    # What a client starts was checked before it was queued.
    if definition.input_check and (pipeline.p >= 0 or transaction.nested):
        misfits = definition.input_check.misfits(transaction.input_of(pipeline))
        if misfits:
            return _misfit(transaction, pipeline, misfits, "input", here)
    first = _add_step(transaction, pipeline, definition.steps[0], 1, transaction.input_source(pipeline), here)
    return RunStep(first.i, checkpoint=definition.steps[0].checkpoint)


def _after_step(transaction: Transaction, entry: FlowEntry, here: Here) -> Move:
    """The step has ended: the next one of its pipeline runs, or the pipeline ends."""
    pipeline = transaction.flow[entry.p]
    if entry.status != Status.SUCCESS:
        return _pipeline_ended(transaction, pipeline, entry, here)
    definition = here.pipeline(pipeline.name, pipeline.pipeline_version)
    place = definition.index_of[entry.name] + 1
    if place == len(definition.steps):
        return _pipeline_ended(transaction, pipeline, entry, here)
    if not _has_room(transaction, 1, here):
        return _overgrown(transaction, here)
    following = definition.steps[place]
    added = _add_step(transaction, pipeline, following, place + 1, transaction.output_source(entry), here)
    return RunStep(added.i, checkpoint=following.checkpoint)


def _pipeline_ended(transaction: Transaction, pipeline: FlowEntry, last: FlowEntry, here: Here) -> Move:
    """The pipeline has its last step's status, output and note; its caller goes on, or the transaction ends."""
    if last.status == Status.SUCCESS:
        output_check = here.pipeline(pipeline.name, pipeline.pipeline_version).output_check
        misfits = output_check.misfits(transaction.output_of(last)) if output_check else []
        if misfits:
            return _misfit(transaction, pipeline, misfits, "output", here)
    pipeline.ts3, pipeline.status, pipeline.note = here.now_ms, last.status, last.note
    pipeline.output_ref = transaction.output_source(last)
    return _caller_goes_on(transaction, pipeline, here)


def _misfit(transaction: Transaction, pipeline: FlowEntry, misfits: list[Misfit], what: str, here: Here) -> Move:
    """The pipeline has failed: its input or output is not what it says of it."""
    note = told(misfits, what)
    output = msgspec.json.encode({"error": note, "errors": misfits})
    _close(transaction, pipeline, Status.FAILED, here, output=output, note=note)
    return _caller_goes_on(transaction, pipeline, here)


def _caller_goes_on(transaction: Transaction, pipeline: FlowEntry, here: Here) -> Move:
    if pipeline.p < 0:
        return _conclude(transaction, here)
    return Requeue("out", NodeGroup(pipeline.return_group), Event("return", pipeline.p))


def _call_pipeline(transaction: Transaction, caller: FlowEntry, call: Calls, here: Here) -> Move:
    pipeline: PinnedPipeline = call.pipeline
    if transaction.depth(caller) >= here.limits.nesting_max:
        return _too_deep(transaction, caller, here)
    if not _has_room(transaction, 2, here):
        return _overgrown(transaction, here)
    transaction.pin(pipeline.name, pipeline.version)
    child = FlowEntry(
        i=len(transaction.flow),
        p=caller.i,
        path=caller.path,
        name=pipeline.name,
        pipeline_version=pipeline.version,
        node_group=pipeline.group,
        return_group=here.node_group,
        ts1=here.now_ms,
        **_given(transaction, call.input, caller),
    )
    transaction.flow.append(child)
    return Requeue("in", pipeline.group, Event("start", child.i))


def _child_returned(transaction: Transaction, caller: FlowEntry, here: Here) -> Move:
    child = next((e for e in reversed(transaction.flow) if e.p == caller.i and e.is_pipeline), None)
    if child is None or child.is_open or not caller.is_open:
        raise BrokenState(f"Entry {caller.i} of the flow was returned to, but it calls no pipeline that has ended")
    caller.ts3, caller.status, caller.note = here.now_ms, child.status, child.note
    caller.output_ref = transaction.output_source(child)
    return _after_step(transaction, caller, here)


def _add_step(
    transaction: Transaction, pipeline: FlowEntry, step: StepDefinition, number: int, input_ref: Ref, here: Here
) -> FlowEntry:
    entry = FlowEntry(
        i=len(transaction.flow),
        p=pipeline.i,
        path=f"{pipeline.path}.{number}" if pipeline.path else str(number),
        name=step.id,
        type=step.step_type,
        node_group=here.node_group,
        ts1=here.now_ms,
        input_ref=input_ref,
    )
    transaction.flow.append(entry)
    return entry


def _close(transaction: Transaction, entry: FlowEntry, status: Status, here: Here, *, output: bytes, note: str) -> None:
    """The entry has ended; an output that equals its input is kept as a reference to it."""
    entry.ts3, entry.status = here.now_ms, status
    entry.joined = NOTHING
    entry.note = _note(note, here)
    if not output or output == transaction.input_of(entry):
        entry.output_ref = transaction.input_source(entry)
    else:
        entry.output = msgspec.Raw(output)


def _given(transaction: Transaction, value: bytes, caller: FlowEntry) -> dict[str, Any]:
    """An input of its own, or a reference to the caller's that it is the same as."""
    if not value or value == transaction.input_of(caller):
        return {"input_ref": transaction.input_source(caller)}
    return {"input": msgspec.Raw(value)}


# ── Sleeping, waiting, trying again ──────────────────────────────────────────────────────────────────────────────


def _again(entry: FlowEntry) -> Event:
    return Event("undo" if entry.undo_of >= 0 else "continue", entry.i)


def _sleep(entry: FlowEntry, wanted: Sleeps, step: StepDefinition | None, here: Here) -> Move:
    entry.sleeping_since = entry.sleeping_since or here.now_ms
    wake_in_ms = wanted.wake_in_ms
    if wake_in_ms is None and not wanted.switch:
        backoff = step.retry.backoff if step and step.retry else Backoff()
        wake_in_ms = backoff.wait_ms(entry.attempt + 1, here.chance)
    note = _note(wanted.note, here)
    return Sleep(_again(entry), NodeGroup(entry.node_group), wake_in_ms, wanted.switch, wanted.seen, note)


def _try_again(entry: FlowEntry, result: Ended, backoff: Backoff, here: Here) -> Move:
    entry.failures += 1
    entry.note = _note(result.note, here)
    wait = backoff.wait_ms(entry.failures, here.chance)
    return Sleep(_again(entry), NodeGroup(entry.node_group), wait, note=entry.note)


# ── Branches ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _fork(transaction: Transaction, caller: FlowEntry, wanted: Forks, here: Here) -> Move:
    depth = transaction.depth(caller)
    if depth >= here.limits.nesting_max:
        return _too_deep(transaction, caller, here)
    if not _has_room(transaction, len(wanted.branches), here):
        return _overgrown(transaction, here)
    own_input = transaction.input_of(caller)
    place = step_id(here.tx_id, caller)
    branches = []
    for index, (pipeline, given) in enumerate(wanted.branches):
        transaction.pin(pipeline.name, pipeline.version)
        branch = new_transaction(pipeline, given or own_input, transaction.metadata, here.now_ms)
        branch.versions = {**transaction.versions, **branch.versions}
        branch.nested = depth
        tx_id = branch_id(here.tx_id, place, caller.attempt, index)
        branches.append(NewBranch(tx_id, pipeline, encode_transaction(branch)))
    caller.again = wanted.again
    if wanted.saved:
        caller.saved = msgspec.Raw(wanted.saved)
    return Fork(Event("joined", caller.i), here.node_group, wanted.need, branches)


def _branches_joined(transaction: Transaction, caller: FlowEntry, joined: Joined | None, here: Here) -> Move:
    if joined is None:
        raise BrokenState(f"Entry {caller.i} of the flow waits for branches, but what they came to is not there")
    _merge_branches(transaction, caller, joined, here)
    if caller.again:
        caller.again, caller.joined = False, msgspec.Raw(_told_of(joined))
        caller.attempt += 1
        return RunStep(caller.i)
    statuses = [result.status for result in joined.results]
    status = Status.SUCCESS if statuses.count(Status.SUCCESS) >= joined.need else _worst(statuses)
    unlucky = sorted((r for r in joined.results if r.status != Status.SUCCESS), key=lambda r: r.status != status)
    note = next((r.note for r in unlucky if r.note), "") if status != Status.SUCCESS else ""
    _close(transaction, caller, status, here, output=_told_of(joined), note=note)
    return _after_step(transaction, caller, here)


def _told_of(joined: Joined) -> bytes:
    """What the branches came to, as a step or a client is told."""
    return msgspec.json.encode(
        [
            {"pipeline": r.pipeline, "status": r.status, "output": r.output, "note": r.note or None}
            for r in joined.results
        ]
    )


def _merge_branches(transaction: Transaction, caller: FlowEntry, joined: Joined, here: Here) -> None:
    """Each branch is an entry under its step, and what it left to be undone stands under that."""
    before = sum(entry.p == caller.i for entry in transaction.flow)  # of a step that has forked earlier
    for number, result in enumerate(joined.results, before + 1):
        branch = FlowEntry(
            i=len(transaction.flow),
            p=caller.i,
            path=f"{caller.path}.{number}",
            name=result.pipeline,
            pipeline_version=result.version,
            ts3=here.now_ms,
            status=result.status,
            note=result.note,
        )
        transaction.flow.append(branch)
        for entry in result.undo:
            entry.i, entry.p = len(transaction.flow), branch.i
            transaction.flow.append(entry)


def _worst(statuses: list[Status]) -> Status:
    """Of a join that failed: the status that asks most for somebody's eyes."""
    for status in (Status.INTERNAL_ERROR, Status.ABORTED, Status.TIMEOUT, Status.FAILED):
        if status in statuses:
            return status
    return Status.FAILED


# ── The end, and undoing ─────────────────────────────────────────────────────────────────────────────────────────


def _conclude(transaction: Transaction, here: Here) -> Move:
    """The transaction's own pipeline has ended: what was done is undone first, if its status asks for that."""
    root = transaction.flow[0]
    status = Status(root.status)
    if status in UNDONE and _left_to_undo(transaction):
        transaction.undo = Undo(status, root.note)
        return _next_undo(transaction, here)
    return Complete(status, transaction.output_of(root), root.note)


def _left_to_undo(transaction: Transaction) -> list[FlowEntry]:
    """Completed steps that can be undone and have not been, newest first."""
    done = {e.undo_of for e in transaction.flow if e.undo_of >= 0 and e.status == Status.SUCCESS}
    return [e for e in reversed(transaction.flow) if e.undoable and e.i not in done]


def _next_undo(transaction: Transaction, here: Here) -> Move:
    undo = transaction.undo
    assert undo, "undo goes on, but it never began"
    left = _left_to_undo(transaction)
    if not left:
        return Complete(undo.status, transaction.output_of(transaction.flow[0]), undo.note)
    target = left[0]
    entry = FlowEntry(
        i=len(transaction.flow),
        p=target.p,
        path=f"{target.path}:undo",
        name=target.name,
        type=target.type,
        node_group=target.node_group,
        ts1=here.now_ms,
        undo_of=target.i,
        step_id=f"{step_id(here.tx_id, target)}:undo",
        of=target.of,
        input_ref=transaction.input_source(target),
    )
    transaction.flow.append(entry)
    if target.node_group == here.node_group:
        # Stored before it runs: from here on the final status is fixed, and each undo that is done stays done.
        return RunStep(entry.i, checkpoint=True)
    return Requeue("in", NodeGroup(target.node_group), Event("undo", entry.i))


def _undo_ended(transaction: Transaction, entry: FlowEntry, result: Ended, here: Here) -> Move:
    if result.status != Status.SUCCESS:
        reason = f"the undo of step {entry.name} ended {result.status}"
        return Park(_note(f"{reason}: {result.note}" if result.note else reason, here), _again(entry))
    _close(transaction, entry, Status.SUCCESS, here, output=result.output, note=result.note)
    return _next_undo(transaction, here)


def _portable(transaction: Transaction, tx_id: TransactionId, entry: FlowEntry) -> FlowEntry:
    """The entry as it can stand in another transaction's flow."""
    pipeline = transaction.flow[entry.p]
    return FlowEntry(
        i=0,
        p=0,
        path=entry.path,
        name=entry.name,
        type=entry.type,
        node_group=entry.node_group,
        node_id=entry.node_id,
        ts1=entry.ts1,
        ts2=entry.ts2,
        ts3=entry.ts3,
        status=entry.status,
        undoable=True,
        step_id=step_id(tx_id, entry),
        of=entry.of or f"{pipeline.name}@{pipeline.pipeline_version}",
        input=msgspec.Raw(transaction.input_of(entry)),
        output=msgspec.Raw(transaction.output_of(entry)),
    )


def _too_deep(transaction: Transaction, caller: FlowEntry, here: Here) -> Move:
    """A pipeline that calls itself ends here; that is its step's outcome."""
    note = f"pipelines are nested more than nesting_max ({here.limits.nesting_max}) deep"
    _close(transaction, caller, Status.FAILED, here, output=NULL, note=note)
    return _after_step(transaction, caller, here)


def _has_room(transaction: Transaction, more: int, here: Here) -> bool:
    """Whether so many entries still fit into the flow. Undos always do: what was done must not stay half undone."""
    return len(transaction.flow) + more <= here.limits.flow_length_max


def _overgrown(transaction: Transaction, here: Here) -> Move:
    """The flow is at its limit: the transaction ends here, wherever its pipelines are, and what was done is undone."""
    note = f"the flow has {len(transaction.flow)} entries, and needs more than flow_length_max allows"
    return conclude_by_verdict(transaction, Verdict(Status.FAILED, note), here)


def _note(text: str, here: Here) -> str:
    """A note as it may be stored and sent, whatever a step or an exception gave."""
    return printable(text, here.limits.note_length_max) if text else ""


def _lost_verdict() -> Move:
    raise BrokenState("The event is a verdict, but no verdict is stored")


__all__ = [
    "BranchResult",
    "Complete",
    "Fork",
    "Here",
    "Joined",
    "Move",
    "NewBranch",
    "Park",
    "PinnedPipeline",
    "PipelineName",
    "PipelineVersion",
    "Requeue",
    "RunStep",
    "Sleep",
    "Verdict",
    "branch_result",
    "conclude_by_verdict",
    "first_move",
    "needed_versions",
    "new_transaction",
    "next_move",
    "undo_group",
]
