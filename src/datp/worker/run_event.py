"""How an event is run. Read this first: it is what the whole engine is about.

A node takes a transaction with its event, its steps run one after the other, each outcome is a move, and the first
move that is not another step ends the run: it is stored, with the state, by one script.
"""

import msgspec

from datp.errors import BrokenState, NotFound
from datp.hotstore.store import Taken
from datp.model.event import Event, decode_event
from datp.model.ids import NodeGroup, NodeId, TransactionId
from datp.model.next_move import (
    BranchResult,
    Complete,
    Here,
    Joined,
    Move,
    Park,
    RunStep,
    Verdict,
    branch_result,
    conclude_by_verdict,
    first_move,
    next_move,
)
from datp.model.status import Status
from datp.model.transaction import Transaction, decode_transaction, encode_transaction
from datp.worker.run import Abandoned, Run, VerdictCame
from datp.worker.run_step import Workbench, decode_branch_result, patiently, run_step

_encode = msgspec.json.Encoder().encode


async def run_event(run: Run, bench: Workbench) -> None:
    """Run one event: its steps run, and what follows is ready to be stored."""
    try:
        run.move = await _run(run, bench)
    except (BrokenState, NotFound) as error:
        run.move = Park(str(error), _stored_event(run.taken))
        run.state = b""
        return
    run.state = _document(run, bench)


async def _run(run: Run, bench: Workbench) -> Move:
    here = _here(run, bench)
    try:
        move = await _begin(run, here, bench)
        while isinstance(move, RunStep):
            move = await _run_one(move, run, here, bench)
        return move
    except VerdictCame as came:
        return await _end_with(came.verdict, run, here, bench)


async def _begin(run: Run, here: Here, bench: Workbench) -> Move:
    """The event's first move; or, for a run whose outcome came second, what its verdict asks for."""
    if run.transaction is not None and run.verdict is not None:
        if isinstance(run.move, Complete):
            run.transaction.take_back_output(run.move.output)
        came, run.verdict, run.interrupted = run.verdict, None, ""
        return conclude_by_verdict(run.transaction, came, here)
    taken = run.taken
    transaction = run.transaction = decode_transaction(taken.state)
    versions = transaction.versions
    if not bench.definitions.has(versions):
        await patiently(run, lambda: bench.definitions.load(versions.items()))
    verdict = Verdict(Status(taken.verdict), taken.verdict_note) if taken.verdict else None
    return first_move(transaction, decode_event(taken.event), here, verdict=verdict, joined=_joined(taken))


async def _run_one(move: RunStep, run: Run, here: Here, bench: Workbench) -> Move:
    """The step of one entry runs; returns what follows."""
    transaction = run.transaction
    assert transaction is not None
    run.at = move.at
    _check_interruption(run)
    if move.checkpoint:
        run.checkpoint(None)
        await run.heard()
        _check_interruption(run)
    result, step = await run_step(run, bench, here.now_ms)
    verdict = None
    if run.has_said:
        try:
            await run.heard()
        except VerdictCame as came:
            verdict = came
    here.now_ms = bench.clock.now_ms()
    following = next_move(transaction, move.at, result, here, step)
    if verdict is not None:
        # The verdict came first, but the step has ended: what it did is recorded, and so it is undone too.
        raise verdict
    return following


def _check_interruption(run: Run) -> None:
    """What came between two steps: a verdict, a lost lease, the end of the node."""
    assert run.transaction is not None
    if run.transaction.undo:
        # It is ending already. A verdict that came before this was stored is told by the store.
        run.verdict = None
    elif run.verdict is not None:
        raise VerdictCame(run.verdict)
    if run.interrupted in ("lease", "shutdown"):
        raise Abandoned(run.interrupted)
    run.interrupted = ""


async def _end_with(verdict: Verdict, run: Run, here: Here, bench: Workbench) -> Move:
    """A deadline or a cancel came first: what is open ends, and what was done is undone, here as far as it can."""
    assert run.transaction is not None
    run.interrupted = ""
    run.verdict = None
    here.now_ms = bench.clock.now_ms()
    move = conclude_by_verdict(run.transaction, verdict, here)
    while isinstance(move, RunStep):
        move = await _run_one(move, run, here, bench)
    return move


def _here(run: Run, bench: Workbench) -> Here:
    return Here(
        tx_id=TransactionId(run.tx_id),
        node_group=NodeGroup(bench.node_group),
        node_id=NodeId(bench.node_id),
        now_ms=bench.clock.now_ms(),
        limits=bench.settings,
        pipeline=bench.definitions.pipeline,
        chance=bench.chance(),
    )


def _joined(taken: Taken) -> Joined | None:
    """The branches' results, in the order in which they were started."""
    if not taken.join:
        return None
    results: list[BranchResult] = []
    for branch_id in taken.join[":order"].decode().split():
        results.append(decode_branch_result(taken.join[branch_id]))
    return Joined(int(taken.join[":need"]), results)


def _stored_event(taken: Taken) -> Event:
    try:
        return decode_event(taken.event)
    except BrokenState:
        return Event("continue")


def _document(run: Run, bench: Workbench) -> bytes:
    """The document as it is to be stored; a final one refers to the output that is stored beside it."""
    transaction: Transaction | None = run.transaction
    assert transaction is not None
    if isinstance(run.move, Complete):
        _leave_to_parent(run, transaction, run.move)
        transaction.hand_over_output()
    state = encode_transaction(transaction)
    if len(state) > bench.settings.state_bytes_max and not transaction.undo:  # what was done must not stay half undone
        note = f"the state has {len(state)} bytes, more than state_bytes_max allows"
        run.move = Complete(Status.INTERNAL_ERROR, b"null", note)
        _leave_to_parent(run, transaction, run.move)
        return run.taken.state
    return state


def _leave_to_parent(run: Run, transaction: Transaction, end: Complete) -> None:
    """A branch leaves what it came to; as long as the document is whole, since undo needs the values."""
    if run.taken.parent:
        run.left = _encode(branch_result(transaction, TransactionId(run.tx_id), end)).decode()
