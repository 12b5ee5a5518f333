"""What a turn carries to the store: outcomes and requests become items of the scripts, and the answers come back."""

import logging
from collections.abc import Sequence
from typing import Any

from datp.errors import StoreError, StoreUnreachable
from datp.hotstore.store import (
    BranchStart,
    Completion,
    Forked,
    Parked,
    Reply,
    Requeued,
    Result,
    Sleeper,
    Turn,
)
from datp.model.event import encode_event
from datp.model.next_move import Complete, Fork, Park, Requeue, Sleep, undo_group
from datp.worker.run import Abandoned, Request, Run, VerdictCame, verdict_in

log = logging.getLogger(__name__)

Sent = list[tuple[Sequence[Any], Reply[list[Result]]]]
"""What was put into one call, and its reply."""


def add_requests(turn: Turn, requests: Sequence[Request]) -> Sent:
    """The requests of running steps, in the order in which each run made them."""
    sent: Sent = []
    place = 0
    while place < len(requests):
        end = place
        while end < len(requests) and requests[end].kind == requests[place].kind:
            end += 1
        group = requests[place:end]
        items: list[Any] = [request.item for request in group]
        match group[0].kind:
            case "progress":
                sent.append((group, turn.report_progress(items)))
            case "switch":
                sent.append((group, turn.set_switch(items)))
            case "checkpoint":
                sent.append((group, turn.checkpoint(items, [request.state for request in group])))
        place = end
    return sent


def answer_requests(sent: Sent) -> None:
    """Every request's maker knows what came of it; raises StoreUnreachable when that is not known."""
    for requests, reply in sent:
        for request, result in zip(requests, reply.value, strict=True):
            future = request.pending.future
            if future.done():
                continue
            if result.code in ("OK", "SAME", "WOKEN", "ALREADY"):
                future.set_result(None)
            elif result.code == "VERDICT":
                future.set_exception(VerdictCame(verdict_in(result)))
            elif result.code in ("STALE_TOKEN", "NO_STATE"):
                future.set_exception(Abandoned(result.code))
            else:
                future.set_exception(StoreError(f"{request.kind} was refused: {result.code} {result.text}"))


def add_outcomes(turn: Turn, runs: Sequence[Run]) -> Sent:
    """The outcomes, one call per kind of move."""
    completed: list[Run] = []
    by_kind: dict[type, list[Run]] = {Complete: completed}
    for run in runs:
        by_kind.setdefault(type(run.move), []).append(run)
    sent: Sent = []
    for kind, group in by_kind.items():
        if not group:
            continue
        states = [run.state for run in group]
        if kind is Complete:
            sent.append((group, turn.complete([_completion(run) for run in group], states)))
        elif kind is Requeue:
            sent.append((group, turn.requeue([_requeued(run) for run in group], states)))
        elif kind is Sleep:
            sent.append((group, turn.sleep([_sleeper(run) for run in group], states)))
        elif kind is Fork:
            sent.append((group, turn.fork([_forked(run) for run in group], states)))
        elif kind is Park:
            sent.append((group, turn.park([_parked(run) for run in group], states)))
        else:
            raise AssertionError(f"{group[0].tx_id} ended with {kind.__name__}, which is not the end of a run")
    return sent


def unanswered(sent: Sent) -> list[Any]:
    """What has to be sent again: whether it was executed is not known, and the scripts answer ALREADY if it was."""
    return [thing for things, reply in sent if isinstance(reply.error, StoreUnreachable) for thing in things]


def _completion(run: Run) -> Completion:
    move = run.move
    assert isinstance(move, Complete)
    return Completion(run.tx_id, run.token, move.status, move.note, move.output.decode(), run.left)


def _requeued(run: Run) -> Requeued:
    move = run.move
    assert isinstance(move, Requeue)
    group, undoing = _undo_of(run)
    snapshot = int(run.taken.durability != "hot")
    return Requeued(run.tx_id, run.token, move.queue, move.group, encode_event(move.event), group, undoing, snapshot)


def _sleeper(run: Run) -> Sleeper:
    move = run.move
    assert isinstance(move, Sleep)
    group, undoing = _undo_of(run)
    return Sleeper(
        tx_id=run.tx_id,
        token=run.token,
        wake_in_ms=-1 if move.wake_in_ms is None else move.wake_in_ms,
        switch=move.switch,
        seen=move.seen,
        group=move.group,
        event=encode_event(move.event),
        note=move.note,
        undo_group=group,
        undoing=undoing,
    )


def _forked(run: Run) -> Forked:
    move = run.move
    assert isinstance(move, Fork)
    branches = [
        BranchStart(
            branch.tx_id,
            branch.pipeline.name,
            branch.pipeline.version,
            branch.pipeline.group,
            branch.pipeline.deadline_ms,
            branch.state.decode(),
        )
        for branch in move.branches
    ]
    return Forked(run.tx_id, run.token, move.group, encode_event(move.event), move.need, _undo_of(run)[0], branches)


def _parked(run: Run) -> Parked:
    move = run.move
    assert isinstance(move, Park)
    group, undoing = _undo_of(run) if run.state else ("", "")
    event = encode_event(move.event) if run.state else ""
    return Parked(run.tx_id, run.token, move.reason, event, group, undoing)


def _undo_of(run: Run) -> tuple[str, str]:
    """Where undoing would begin, and the status that undo has begun with."""
    transaction = run.transaction
    assert transaction is not None
    return undo_group(transaction), transaction.undo.status if transaction.undo else ""
