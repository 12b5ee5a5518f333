"""Cancels and deadlines, in every phase: one verdict, stored once; the first of verdict and outcome wins."""

import json
from collections.abc import Awaitable, Callable
from typing import Final

import pytest
from driver import LATER_MS, VERDICT, Driver

from datp.model.status import Phase

Bring = Callable[[Driver, str, int], Awaitable[str]]
"""driver, undo_group, deadline_in_ms → the id of a transaction in some phase."""


async def _queued(hot: Driver, undo_group: str, deadline_in_ms: int) -> str:
    run = await hot.running(deadline_in_ms=deadline_in_ms)
    await hot.requeue(run, undo_group=undo_group)
    return run.tx_id


async def _running(hot: Driver, undo_group: str, deadline_in_ms: int) -> str:
    run = await hot.running(deadline_in_ms=deadline_in_ms)
    await hot.checkpoint(run, undo_group=undo_group)
    return run.tx_id


async def _sleeping(hot: Driver, undo_group: str, deadline_in_ms: int) -> str:
    run = await hot.running(deadline_in_ms=deadline_in_ms)
    await hot.sleep(run, LATER_MS, undo_group=undo_group)
    return run.tx_id


async def _waiting(hot: Driver, undo_group: str, deadline_in_ms: int) -> str:
    run = await hot.running(deadline_in_ms=deadline_in_ms)
    await hot.wait(run, undo_group=undo_group)
    return run.tx_id


async def _joining(hot: Driver, undo_group: str, deadline_in_ms: int) -> str:
    run = await hot.running(deadline_in_ms=deadline_in_ms)
    await hot.fork(run, 2, undo_group=undo_group)
    return run.tx_id


async def _parked(hot: Driver, undo_group: str, deadline_in_ms: int) -> str:
    run = await hot.running(deadline_in_ms=deadline_in_ms)
    await hot.park(run, state=b"{}", event='{"kind":"continue","at":1}', undo_group=undo_group)
    return run.tx_id


AT_REST: Final[dict[Phase, Bring]] = {
    Phase.QUEUED: _queued,
    Phase.SLEEPING: _sleeping,
    Phase.WAITING: _waiting,
    Phase.EXCEPTION: _parked,
}
LIVE: Final[dict[Phase, Bring]] = {**AT_REST, Phase.RUNNING: _running, Phase.JOINING: _joining}

at_rest = pytest.mark.parametrize("bring", AT_REST.values(), ids=AT_REST)
live = pytest.mark.parametrize("bring", LIVE.values(), ids=LIVE)


def test_every_live_phase_is_tried() -> None:
    assert set(LIVE) == set(Phase) - {Phase.COMPLETE}


async def _enforce(hot: Driver) -> None:
    """What can be due is enforced: deadlines, sleepers, graces."""
    for _ in range(3):
        await hot.reap()
        await hot.wake_due()
        await hot.pass_time(hot.store.settings.cancel_grace_ms)


# ── cancel ───────────────────────────────────────────────────────────────────────────────────────────────────────


@at_rest
async def test_what_rests_and_has_nothing_to_undo_is_cancelled_at_once(bring: Bring, hot: Driver) -> None:
    tx_id = await bring(hot, "", LATER_MS)
    result = await hot.cancel(tx_id, "the client left")
    assert (result.code, result.text) == ("OK", "cancelled")
    assert (hot.phase(tx_id), hot.field(tx_id, "status")) == ("complete", "cancelled")
    assert hot.field(tx_id, "note") == "the client left"


@at_rest
async def test_what_rests_and_has_something_to_undo_goes_to_a_worker_with_its_verdict(
    bring: Bring, hot: Driver
) -> None:
    tx_id = await bring(hot, "main", LATER_MS)
    assert (await hot.cancel(tx_id, "the client left")).code == "OK"
    run = await hot.take_one(tx_id)
    assert (run.event.decode(), run.verdict, run.verdict_note) == (VERDICT, "cancelled", "the client left")
    assert (await hot.requeue(run, "in", undo_group="main", undoing="cancelled")).code == "OK"
    assert (await hot.complete(await hot.take_one(tx_id), "cancelled")).code == "OK"


@live
@pytest.mark.parametrize("undo_group", ["", "main"])
async def test_a_cancelled_transaction_ends_cancelled_from_every_phase(
    undo_group: str, bring: Bring, hot: Driver
) -> None:
    tx_id = await bring(hot, undo_group, 0)
    await hot.cancel(tx_id)
    await _enforce(hot)
    if undo_group:
        run = await hot.take_one(tx_id)
        assert run.verdict == "cancelled"
        await hot.complete(run, "cancelled")
    assert (hot.phase(tx_id), hot.field(tx_id, "status")) == ("complete", "cancelled")


async def test_what_runs_is_asked_by_an_event_to_its_node(hot: Driver) -> None:
    run = await hot.running()
    assert (await hot.cancel(run.tx_id, "the client left")).code == "ASKED"
    [event] = (await hot.take()).admin
    told = json.loads(event)
    assert (told["kind"], told["txId"], told["token"]) == ("cancel", run.tx_id, run.token)
    assert (told["status"], told["note"]) == ("cancelled", "the client left")
    assert hot.raw.llen(hot.key("bell", group="n1")) == 1


async def test_what_does_not_hear_is_fenced_after_the_grace(hot: Driver) -> None:
    run = await hot.running()
    await hot.cancel(run.tx_id)
    hot.clock.advance(hot.store.settings.cancel_grace_ms - 1)
    assert await hot.reaped() == []
    hot.clock.advance(1)
    assert await hot.reaped() == [(run.tx_id, "FENCED", "cancelled")]
    assert (await hot.complete(run)).code == "STALE_TOKEN"
    assert hot.field(run.tx_id, "status") == "cancelled"


async def test_a_run_that_hears_ends_with_the_verdict(hot: Driver) -> None:
    run = await hot.running()
    await hot.cancel(run.tx_id)
    assert (await hot.complete(run, "success")).code == "VERDICT"
    assert (await hot.complete(run, "cancelled")).code == "OK"
    assert hot.score("deadlines", run.tx_id) is None


async def test_a_node_that_took_it_after_the_verdict_is_asked_again_and_gets_its_own_grace(hot: Driver) -> None:
    """The lease was lost in the grace: the new run is told of the verdict when it begins."""
    parent, branches = await hot.joining(2, need=1)
    await hot.complete(branches[0])
    await hot.reap()
    await hot.give_back(branches[1])
    run = await hot.take_one(branches[1].tx_id, group="side", node="n2")
    assert run.verdict == "cancelled"
    for what in ("ASKED", "FENCED"):
        await hot.pass_time(hot.store.settings.cancel_grace_ms, alive=[run])
        assert await hot.reaped() == [(run.tx_id, what, "cancelled")]
    assert hot.phase(parent) == "queued"


async def test_an_evicted_one_is_cancelled_with_its_restoring(hot: Driver) -> None:
    archived = await hot.evicted()
    assert (await hot.cancel(archived.tx_id)).code == "EVICTED"
    result = await hot.restore(archived, "cancel", "the client left")
    assert (result.code, result.text) == ("OK", "cancelled")
    assert hot.field(archived.tx_id, "note") == "the client left"


# ── deadlines ────────────────────────────────────────────────────────────────────────────────────────────────────


@live
@pytest.mark.parametrize("undo_group", ["", "main"])
async def test_a_deadline_ends_it_with_timeout_in_every_phase(undo_group: str, bring: Bring, hot: Driver) -> None:
    tx_id = await bring(hot, undo_group, 60_000)
    await hot.pass_time(60_000)
    await _enforce(hot)
    if undo_group:
        run = await hot.take_one(tx_id, alone=True)
        assert (run.verdict, run.verdict_note) == ("timeout", "the deadline passed")
        await hot.complete(run, "timeout")
    assert (hot.phase(tx_id), hot.field(tx_id, "status")) == ("complete", "timeout")


@live
async def test_nothing_ends_before_its_deadline(bring: Bring, hot: Driver) -> None:
    tx_id = await bring(hot, 0, 5_000)
    phase = hot.phase(tx_id)
    hot.clock.advance(4_999)
    assert await hot.reaped() == await hot.woken() == []
    assert hot.phase(tx_id) == phase


async def test_an_evicted_ones_deadline_wakes_it_and_ends_it(hot: Driver) -> None:
    archived = await hot.evicted(wake_in_ms=-1, switch="go", deadline_in_ms=LATER_MS)
    hot.clock.advance(LATER_MS)
    assert await hot.woken() == [(archived.tx_id, "EVICTED", str(archived.version))]
    assert (await hot.restore(archived, "due")).code == "TIMEOUT"
    assert hot.field(archived.tx_id, "status") == "timeout"


async def test_a_queued_one_of_a_group_without_nodes_times_out(hot: Driver) -> None:
    [tx_id] = await hot.queued(group="nobody", deadline_in_ms=100)
    hot.clock.advance(100)
    await hot.reap()
    assert hot.field(tx_id, "status") == "timeout"
    assert (await hot.take(group="nobody")).taken == []


# ── one verdict ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_first_verdict_stays(hot: Driver) -> None:
    run = await hot.running(deadline_in_ms=1_000)
    hot.clock.advance(1_000)
    assert await hot.reaped() == [(run.tx_id, "ASKED", "timeout")]
    assert (await hot.cancel(run.tx_id)).text == "timeout"
    await hot.complete(run, "timeout")
    assert (await hot.cancel(run.tx_id)).code == "FINAL"


async def test_a_deadline_after_a_cancel_changes_nothing(hot: Driver) -> None:
    run = await hot.running(deadline_in_ms=1_000)
    await hot.cancel(run.tx_id)
    hot.clock.advance(hot.store.settings.cancel_grace_ms)
    assert await hot.reaped() == [(run.tx_id, "FENCED", "cancelled")]
    assert hot.field(run.tx_id, "status") == "cancelled"


async def test_an_outcome_that_came_first_stays(hot: Driver) -> None:
    run = await hot.running(deadline_in_ms=1_000)
    await hot.complete(run, "success")
    hot.clock.advance(1_000)
    assert await hot.reaped() == []
    assert hot.field(run.tx_id, "status") == "success"


# ── undoing ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _undoing(hot: Driver, how: str, deadline_in_ms: int) -> str:
    """A transaction that has begun to undo, and is where `how` says."""
    run = await hot.running(deadline_in_ms=deadline_in_ms)
    given = {"undo_group": "main", "undoing": "failed"}
    match how:
        case "queued":
            await hot.requeue(run, **given)  # type: ignore[arg-type]
        case "running":
            await hot.checkpoint(run, **given)  # type: ignore[arg-type]
        case "sleeping":
            await hot.sleep(run, 60_000, **given)  # type: ignore[arg-type]
        case "woken":
            await hot.set_switch(run.tx_id)
            await hot.wait(run, **given)  # type: ignore[arg-type]
        case "exception":
            await hot.park(run, state=b"{}", event='{"kind":"undo","at":2}', **given)  # type: ignore[arg-type]
    return run.tx_id


undoing = pytest.mark.parametrize("how", ["queued", "running", "sleeping", "woken", "exception"])


@undoing
async def test_once_undo_begins_no_deadline_applies(how: str, hot: Driver) -> None:
    tx_id = await _undoing(hot, how, 1_000)
    phase = hot.phase(tx_id)
    assert hot.score("deadlines", tx_id) is None
    await hot.pass_time(10_000)
    assert [what for _, what, _ in await hot.reaped() + await hot.woken()] == []
    assert hot.phase(tx_id) == phase


@undoing
async def test_once_undo_begins_no_cancel_applies(how: str, hot: Driver) -> None:
    tx_id = await _undoing(hot, how, 0)
    phase = hot.phase(tx_id)
    assert (await hot.cancel(tx_id)).code == "UNDOING"
    assert hot.phase(tx_id) == phase


@pytest.mark.parametrize("undoing", ["", "timeout"])
async def test_a_write_that_was_decided_before_undoing_began_comes_too_late(undoing: str, hot: Driver) -> None:
    """Sent on a connection that broke, and executed after what followed it."""
    run = await hot.running()
    assert (await hot.checkpoint(run, undo_group="main", undoing="failed")).code == "OK"
    given = {"undo_group": "main", "undoing": undoing}
    late = [await hot.sleep(run, 1_000, **given), await hot.requeue(run, **given), await hot.checkpoint(run, **given)]
    late += [await hot.park(run, state=b"{}", **given), await hot.complete(run, undoing or "success")]
    late += [await hot.fork(run)]
    assert {result.code for result in late} == {"STALE_TOKEN"}
    assert (hot.phase(run.tx_id), hot.field(run.tx_id, "undoing")) == ("running", "failed")
    assert (await hot.complete(run, "failed")).code == "OK"


async def test_a_sleeper_between_two_undos_wakes_when_its_time_comes(hot: Driver) -> None:
    tx_id = await _undoing(hot, "sleeping", 1_000)
    hot.clock.advance(60_000)
    assert await hot.woken() == [(tx_id, "WOKEN", "")]
    assert hot.score("deadlines", tx_id) is None


async def test_one_that_undoes_is_restored_without_its_deadline(hot: Driver) -> None:
    run = await hot.running(deadline_in_ms=1_000)
    await hot.sleep(run, LATER_MS, undo_group="main", undoing="failed")
    score = hot.score("sleeping", run.tx_id)
    archived = await hot.evict(run.tx_id)
    await hot.restore(archived)
    assert hot.score("sleeping", run.tx_id) == score
