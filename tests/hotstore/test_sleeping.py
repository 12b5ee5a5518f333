"""Sleeping and waking: in time, in order, and through SQL and back."""

import math

from driver import LATER_MS, Driver

from datp.hotstore.store import ArchiveAck


async def test_a_sleeper_wakes_when_its_time_comes_and_not_before(hot: Driver) -> None:
    run = await hot.running()
    await hot.sleep(run, 5_000)
    hot.clock.advance(4_999)
    assert await hot.woken() == []
    hot.clock.advance(1)
    assert await hot.woken() == [(run.tx_id, "WOKEN", "")]
    assert (await hot.take_one(run.tx_id)).woken == "time"


async def test_sleepers_wake_in_the_order_of_their_times(hot: Driver) -> None:
    runs = [await hot.running() for _ in range(4)]
    for run, wake_in_ms in zip(runs, (400, 100, 300, 200), strict=True):
        await hot.sleep(run, wake_in_ms)
    hot.clock.advance(1_000)
    assert [tx_id for tx_id, _, _ in await hot.woken()] == [runs[place].tx_id for place in (1, 3, 2, 0)]
    assert [one.tx_id for one in (await hot.take(4)).taken] == [runs[place].tx_id for place in (1, 3, 2, 0)]


async def test_nothing_limits_waking_but_the_batch(hot: Driver) -> None:
    await hot.queued(250)
    for run in (await hot.take(250)).taken:
        await hot.sleep(run, 10)
    hot.clock.advance(10)
    assert len((await hot.wake_due(want=200)).happened) == 200
    assert len((await hot.wake_due(want=200)).happened) == 50


async def test_the_score_is_the_first_of_wake_and_deadline_and_no_deadline_stands_elsewhere(hot: Driver) -> None:
    now = hot.clock.now_ms()
    for wake_in_ms, deadline_in_ms, wanted in (
        (5_000, 0, now + 5_000),
        (5_000, 9_000, now + 5_000),
        (9_000, 5_000, now + 5_000),
        (-1, 5_000, now + 5_000),
        (-1, 0, math.inf),
    ):
        run = await hot.running(deadline_in_ms=deadline_in_ms)
        await hot.wait(run, "go", wake_in_ms=wake_in_ms)
        assert hot.score("sleeping", run.tx_id) == wanted
        assert hot.score("deadlines", run.tx_id) is None


async def test_waking_brings_the_deadline_back_to_its_place(hot: Driver) -> None:
    run = await hot.running(deadline_in_ms=9_000)
    due = hot.score("deadlines", run.tx_id)
    await hot.sleep(run, 1_000)
    await hot.wake(run.tx_id)
    assert hot.score("deadlines", run.tx_id) == due


async def test_a_waiter_with_a_time_out_is_told_that_the_time_was_out(hot: Driver) -> None:
    run = await hot.running()
    await hot.wait(run, "go", wake_in_ms=1_000)
    hot.clock.advance(1_000)
    await hot.wake_due()
    assert (await hot.take_one(run.tx_id)).woken == "time"


async def test_it_says_when_the_next_sleeper_is_due(hot: Driver) -> None:
    run = await hot.running()
    await hot.sleep(run, 5_000)
    assert (await hot.wake_due()).next_due_ms == hot.clock.now_ms() + 5_000


async def test_a_short_sleep_costs_sql_nothing(hot: Driver) -> None:
    run = await hot.running()
    await hot.sleep(run, 100)
    assert hot.score("to_archive", run.tx_id) == hot.clock.now_ms() + hot.store.settings.evict_after_ms
    hot.clock.advance(100)
    await hot.wake_due()
    assert hot.score("to_archive", run.tx_id) is None


# ── evicted ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_evicted_sleeper_is_claimed_and_told_of_again_when_the_claim_runs_out(hot: Driver) -> None:
    archived = await hot.evicted()
    hot.clock.advance(LATER_MS)
    due = [(archived.tx_id, "EVICTED", str(archived.version))]
    assert await hot.woken() == due
    assert await hot.woken() == []
    hot.clock.advance(hot.store.settings.wake_claim_ms)
    assert await hot.woken() == due
    assert (await hot.restore(archived, "due")).code == "WOKEN"
    assert await hot.woken() == []


async def test_a_restored_transaction_is_what_it_was(hot: Driver) -> None:
    run = await hot.running(external_id="e", deadline_in_ms=2 * LATER_MS, webhook='{"url":"u"}')
    await hot.set_switch(run.tx_id, "s", "1")
    await hot.wait(run, "go", wake_in_ms=LATER_MS, undo_group="main")
    before = hot.copy(run.tx_id)
    score = hot.score("sleeping", run.tx_id)
    archived = await hot.evict(run.tx_id)
    assert (await hot.restore(archived)).code == "OK"
    assert hot.copy(run.tx_id) == before
    assert hot.score("sleeping", run.tx_id) == score


async def test_a_restored_one_that_sleeps_on_is_evicted_again_later(hot: Driver) -> None:
    archived = await hot.evicted()
    await hot.restore(archived)
    assert hot.score("to_archive", archived.tx_id) == hot.clock.now_ms() + hot.store.settings.evict_after_ms
    assert (await hot.evict(archived.tx_id)).version == archived.version


async def test_restore_never_writes_over_what_is_there(hot: Driver) -> None:
    archived = await hot.evicted()
    await hot.restore(archived, "wake")
    run = await hot.take_one(archived.tx_id)
    before = hot.copy(run.tx_id)
    assert (await hot.restore(archived, "wake")).code == "PRESENT"
    assert hot.copy(run.tx_id) == before


async def test_a_restore_that_comes_twice_wakes_once(hot: Driver) -> None:
    archived = await hot.evicted()
    assert (await hot.restore(archived, "due")).code == "WOKEN"
    assert (await hot.restore(archived, "due")).code == "PRESENT"
    assert len((await hot.take(5)).taken) == 1


async def test_what_changed_while_it_was_written_to_sql_is_not_evicted(hot: Driver) -> None:
    run = await hot.running()
    await hot.sleep(run, LATER_MS)
    archivable = await hot.claim(run.tx_id)
    await hot.set_switch(run.tx_id, "s", "1")
    reply = await hot.archive(ArchiveAck(run.tx_id, archivable.version, 1))
    assert [result.code for result in reply.acknowledged] == ["CHANGED"]
    assert hot.phase(run.tx_id) == "sleeping"
    [again] = reply.claimed
    assert (again.tx_id, again.switches.keys()) == (run.tx_id, {"s"})


async def test_what_woke_while_it_was_written_to_sql_is_not_evicted(hot: Driver) -> None:
    run = await hot.running()
    await hot.sleep(run, LATER_MS)
    archivable = await hot.claim(run.tx_id)
    await hot.wake(run.tx_id)
    [result] = (await hot.archive(ArchiveAck(run.tx_id, archivable.version, 1))).acknowledged
    assert (result.code, hot.phase(run.tx_id)) == ("CHANGED", "queued")


async def test_a_sleeping_branch_is_archived_but_stays_in_memory(hot: Driver) -> None:
    _, [branch] = await hot.joining(1)
    await hot.sleep(branch, LATER_MS)
    archivable = await hot.claim(branch.tx_id)
    [result] = (await hot.archive(ArchiveAck(branch.tx_id, archivable.version, 1))).acknowledged
    assert (result.code, hot.phase(branch.tx_id)) == ("OK", "sleeping")


async def test_a_snapshot_of_what_runs_or_is_queued_is_never_evicted(hot: Driver) -> None:
    run = await hot.running()
    await hot.checkpoint(run)
    archivable = await hot.claim(run.tx_id)
    [result] = (await hot.archive(ArchiveAck(run.tx_id, archivable.version, 1))).acknowledged
    assert (result.code, hot.phase(run.tx_id)) == ("OK", "running")
