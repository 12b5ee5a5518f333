"""Branches: they run side by side, are counted once, and wake the parent that waits for them."""

import json

import pytest
from driver import JOINED, LATER_MS, Driver

from datp.hotstore.store import Completion, Result, Taken


def _join(run: Taken) -> dict[str, str]:
    """What each branch left, by its id."""
    return {name: value.decode() for name, value in run.join.items() if not name.startswith(":")}


async def _end(hot: Driver, branch: Taken, status: str = "success", undo: str = "") -> Result:
    return await hot.complete(branch, status, branch_result=f'{{"status":"{status}"{undo}}}')


async def test_all_branches_end_and_the_parent_goes_on_with_their_results(hot: Driver) -> None:
    parent, branches = await hot.joining(3)
    for branch in branches:
        assert hot.phase(parent) == "joining"
        await _end(hot, branch)
    run = await hot.take_one(parent)
    assert run.event.decode() == JOINED
    assert run.join[":order"].decode().split() == [branch.tx_id for branch in branches]
    assert _join(run) == {branch.tx_id: '{"status":"success"}' for branch in branches}


async def test_a_branch_that_is_counted_twice_counts_once(hot: Driver) -> None:
    parent, branches = await hot.joining(2)
    await _end(hot, branches[0])
    assert (await _end(hot, branches[0])).code == "ALREADY"
    assert hot.phase(parent) == "joining"
    assert hot.raw.hget(hot.key("join", tx_id=parent), ":open") == "1"


async def test_the_results_are_given_to_every_run_until_one_stores_something(hot: Driver) -> None:
    parent, branches = await hot.joining(1)
    await _end(hot, branches[0])
    run = await hot.take_one(parent)
    await hot.give_back(run)
    again = await hot.take_one(parent)
    await hot.lose_lease(again)
    last = await hot.take_one(parent, alone=True)
    assert run.join == again.join == last.join != {}
    await hot.checkpoint(last)
    assert not hot.raw.exists(hot.key("join", tx_id=parent))


async def test_branches_appear_under_their_parent_only(hot: Driver) -> None:
    """They are not announced, owe no webhook, and are counted apart."""
    run = await hot.running(external_id="e", webhook='{"url":"u"}')
    await hot.fork(run, 1)
    [branch] = (await hot.take(group="side")).taken
    assert (branch.parent, branch.external_id) == (run.tx_id, "")
    await _end(hot, branch)
    assert hot.raw.zcard(hot.key("webhooks")) == 0
    assert (await hot.find("e")).text == run.tx_id


# ── first, and n of m ────────────────────────────────────────────────────────────────────────────────────────────


async def test_with_first_the_losers_are_cancelled_and_the_join_completes_when_they_have_ended(hot: Driver) -> None:
    parent, [winner, runs, sleeps] = await hot.joining(3, need=1)
    await hot.sleep(sleeps, LATER_MS, group="side")
    await _end(hot, winner)
    assert hot.phase(parent) == "joining"
    assert sorted(await hot.reaped()) == sorted([(runs.tx_id, "ASKED", "cancelled"), (sleeps.tx_id, "OK", "cancelled")])
    assert hot.phase(parent) == "joining"
    await _end(hot, runs, "cancelled")
    results = _join(await hot.take_one(parent))
    assert [json.loads(results[branch.tx_id])["status"] for branch in (winner, runs, sleeps)] == [
        "success",
        "cancelled",
        "cancelled",
    ]


async def test_a_loser_that_does_not_hear_is_fenced_and_the_join_completes(hot: Driver) -> None:
    parent, [winner, loser] = await hot.joining(2, need=1)
    await _end(hot, winner)
    await hot.reap()
    await hot.pass_time(hot.store.settings.cancel_grace_ms)
    assert (loser.tx_id, "FENCED", "cancelled") in await hot.reaped()
    assert hot.phase(parent) == "queued"
    assert (await _end(hot, loser)).code == "STALE_TOKEN"


async def test_a_losers_finished_steps_are_undone_before_the_join_completes(hot: Driver) -> None:
    parent, [winner, loser] = await hot.joining(2, need=1)
    await hot.requeue(loser, group="side", undo_group="main")
    await _end(hot, winner)
    assert await hot.reaped() == [(loser.tx_id, "OK", "cancelled")]
    assert hot.phase(parent) == "joining"
    undoes = await hot.take_one(loser.tx_id, group="main")
    await hot.checkpoint(undoes, undo_group="main", undoing="cancelled")
    await _end(hot, undoes, "cancelled")
    assert hot.phase(parent) == "queued"


@pytest.mark.parametrize(("width", "need"), [(3, 2), (5, 3), (4, 4)])
async def test_n_of_m_is_decided_by_the_nth_success(width: int, need: int, hot: Driver) -> None:
    parent, branches = await hot.joining(width, need=need)
    for branch in branches[: need - 1]:
        await _end(hot, branch)
    assert await hot.reaped() == []
    await _end(hot, branches[need - 1])
    assert len(await hot.reaped()) == width - need
    for branch in branches[need:]:
        await _end(hot, branch, "cancelled")
    assert hot.phase(parent) == "queued"


@pytest.mark.parametrize(("width", "need"), [(3, 2), (5, 3), (4, 4)])
async def test_n_of_m_is_decided_too_when_it_can_not_be_reached_any_more(width: int, need: int, hot: Driver) -> None:
    _, branches = await hot.joining(width, need=need)
    for branch in branches[: width - need]:
        await _end(hot, branch, "failed")
    assert await hot.reaped() == []
    await _end(hot, branches[width - need], "failed")
    assert len(await hot.reaped()) == need - 1


async def test_a_success_that_came_with_the_deciding_one_has_lost(hot: Driver) -> None:
    """Both in one call: the second is told that it was cancelled."""
    _, [first, second] = await hot.joining(2, need=1)
    items = [Completion(one.tx_id, one.token, "success", "", "null", '{"status":"success"}') for one in (first, second)]
    async with hot.store.turn() as turn:
        reply = turn.complete(items, [b"{}"] * 2)
    assert [(answer.code, answer.text) for answer in reply.value][1] == ("VERDICT", "cancelled")
    assert reply.value[0].code == "OK"
    assert (await _end(hot, second, "cancelled")).code == "OK"


# ── the parent's end ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_parents_cancel_cancels_its_branches_and_it_ends_when_they_have_ended(hot: Driver) -> None:
    parent, branches = await hot.joining(2)
    assert (await hot.cancel(parent)).code == "ASKED"
    assert hot.phase(parent) == "joining"
    assert {what for _, what, _ in await hot.reaped()} == {"ASKED"}
    for branch in branches:
        await _end(hot, branch, "cancelled")
    assert hot.field(parent, "status") == "cancelled"
    assert not hot.raw.exists(hot.key("join", tx_id=parent))


async def test_a_parent_whose_branches_left_something_to_undo_goes_to_a_worker(hot: Driver) -> None:
    parent, [done, other] = await hot.joining(2)
    await _end(hot, done, undo=',"undo":[{"i":1}]')
    await hot.cancel(parent)
    await hot.reap()
    await _end(hot, other, "cancelled")
    run = await hot.take_one(parent)
    assert (run.verdict, len(_join(run))) == ("cancelled", 2)


async def test_a_branch_that_was_decided_before_its_parents_end_keeps_its_status(hot: Driver) -> None:
    parent, [done, other] = await hot.joining(2)
    await _end(hot, done)
    await hot.cancel(parent)
    await hot.reap()
    await _end(hot, other, "cancelled")
    assert hot.field(done.tx_id, "status") == "success"


async def test_a_branch_that_ends_after_its_parent_is_gone_keeps_its_status_and_changes_nothing(
    hot: Driver,
) -> None:
    parent, [branch] = await hot.joining(1)
    for name in ("state", "join"):
        hot.raw.delete(hot.key(name, tx_id=parent))
    for place in ("joining", "started"):
        hot.raw.zrem(hot.key(place), parent)
    assert (await _end(hot, branch)).code == "OK"
    assert hot.field(branch.tx_id, "status") == "success"
    assert not hot.raw.exists(hot.key("state", tx_id=parent), hot.key("join", tx_id=parent))


async def test_a_branch_of_an_earlier_attempt_is_not_counted(hot: Driver) -> None:
    """The parent joins again, with other branches."""
    parent, [branch] = await hot.joining(1)
    await _end(hot, branch)
    run = await hot.take_one(parent)
    await hot.fork(run, 1)
    assert (await _end(hot, branch)).code == "ALREADY"
    assert hot.raw.hget(hot.key("join", tx_id=parent), ":open") == "1"


async def test_the_parents_deadline_holds_while_a_branch_is_parked(hot: Driver) -> None:
    parent, [branch] = await hot.joining(1, deadline_in_ms=1_000)
    await hot.park(branch)
    hot.clock.advance(1_000)
    for _ in range(2):
        await hot.reap()
    assert hot.field(branch.tx_id, "status") in ("timeout", "cancelled")
    assert hot.field(parent, "status") == "timeout"


async def test_a_branchs_deadline_is_at_most_its_parents(hot: Driver) -> None:
    run = await hot.running(deadline_in_ms=10_000)
    branches = [hot.branch(run.tx_id, place, deadline_in_ms=given) for place, given in enumerate((0, 500, 50_000))]
    await hot.fork(run, branches)
    now = hot.clock.now_ms()
    assert [hot.score("deadlines", branch.tx_id) - now for branch in branches] == [10_000, 500, 10_000]


async def test_a_lost_branch_gets_no_ghost_when_the_join_is_settled(hot: Driver) -> None:
    parent, [lost, other] = await hot.joining(2)
    hot.raw.delete(hot.key("state", tx_id=lost.tx_id))
    await hot.cancel(parent)
    assert not hot.raw.exists(hot.key("state", tx_id=lost.tx_id))
    # Nobody can end the lost one any more; the store is left as it was found.
    for name in ("processing", "running", "deadlines"):
        hot.raw.zrem(hot.key(name), lost.tx_id)
    hot.raw.hset(hot.key("join", tx_id=parent), mapping={lost.tx_id: "{}", ":open": 1})
    await _end(hot, other, "cancelled")
    assert hot.field(parent, "status") == "cancelled"


# ── verdicts that meet branches in every phase ───────────────────────────────────────────────────────────────────


async def test_losers_are_cancelled_wherever_they_are(hot: Driver) -> None:
    """Queued, running, asleep, waiting, parked, joining: what is due now is enforced by the next reaping."""
    run = await hot.running()
    await hot.fork(run, 7, need=1)
    winner, runs, sleeps, waits, parked, joins, queued = (await hot.take(7, group="side")).taken
    await hot.sleep(sleeps, LATER_MS, group="side")
    await hot.wait(waits, group="side")
    await hot.park(parked)
    await hot.fork(joins, [hot.branch(joins.tx_id, 0, group="grand")], group="side")
    await hot.give_back(queued)
    await _end(hot, winner)
    await hot.reap()
    ended = {one.tx_id: hot.field(one.tx_id, "status") for one in (sleeps, waits, parked, queued)}
    assert set(ended.values()) == {"cancelled"}
    await hot.reap()  # the grandchild, which was cancelled by the first
    assert hot.field(joins.tx_id, "status") == "cancelled"
    assert hot.phase(run.tx_id) == "joining"
    await _end(hot, runs, "cancelled")
    assert hot.phase(run.tx_id) == "queued"
    await hot.take(5, group="grand")
    await hot.take(5, group="side")


async def test_a_loser_that_wakes_before_it_is_reaped_is_still_due(hot: Driver) -> None:
    parent, [winner, waits] = await hot.joining(2, need=1, deadline_in_ms=LATER_MS)
    await hot.wait(waits, group="side")
    await _end(hot, winner)
    assert (await hot.set_switch(waits.tx_id)).code == "WOKEN"
    assert await hot.reaped() == [(waits.tx_id, "OK", "cancelled")]
    assert hot.phase(parent) == "queued"


async def test_a_loser_whose_deadline_passes_in_its_sleep_ends_with_the_verdict_that_came_first(hot: Driver) -> None:
    run = await hot.running()
    branches = [hot.branch(run.tx_id, place, deadline_in_ms=5_000) for place in range(2)]
    await hot.fork(run, branches, need=1)
    winner, sleeps = (await hot.take(2, group="side")).taken
    await hot.sleep(sleeps, LATER_MS, group="side")
    await _end(hot, winner)
    hot.clock.advance(5_000)
    assert await hot.woken() == [(sleeps.tx_id, "TIMEOUT", "cancelled")]
    assert await hot.woken() == []
    assert hot.field(sleeps.tx_id, "status") == "cancelled"


# ── nested ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_branch_may_have_branches_and_each_level_waits_for_the_one_below(hot: Driver) -> None:
    parent, [branch, other] = await hot.joining(2)
    await hot.fork(branch, [hot.branch(branch.tx_id, place) for place in range(2)], group="side")
    grand = (await hot.take(2, group="side")).taken
    for one in grand:
        await _end(hot, one)
    assert hot.phase(branch.tx_id) == "queued"
    await _end(hot, other)
    assert hot.phase(parent) == "joining"
    await _end(hot, await hot.take_one(branch.tx_id, group="side"))
    assert hot.phase(parent) == "queued"


async def test_cancelling_the_top_ends_all_levels_in_one_reaping_each(hot: Driver) -> None:
    top = await hot.running()
    parent = top
    for level in range(4):
        group = "main" if level == 0 else "side"
        await hot.fork(parent, [hot.branch(parent.tx_id, 0)], group=group)
        [parent] = (await hot.take(group="side")).taken
    await hot.give_back(parent)
    await hot.cancel(top.tx_id)
    for _ in range(4):
        await hot.reap()
    assert hot.field(top.tx_id, "status") == "cancelled"
    assert (await hot.take(5, group="side")).taken == []


async def test_a_hundred_branches_in_one_call_wake_the_parent_once(hot: Driver) -> None:
    parent, branches = await hot.joining(100)
    for branch in branches:
        await _end(hot, branch)
    assert hot.raw.lrange(hot.key("queue", queue="Out", group="main"), 0, -1) == [parent]
