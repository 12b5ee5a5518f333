"""A run holds a token; whatever ends it clears the token, and the same end again gets the same answer."""

import json

import pytest
from driver import GO_ON, Driver
from test_codes import ENDS, WITH_TOKEN

from datp.hotstore.store import Result

NO_TOKEN = ""


async def _state(hot: Driver, tx_id: str) -> dict[str, str]:
    found: dict[str, str] = hot.raw.hgetall(hot.key("state", tx_id=tx_id))
    return found


@pytest.mark.parametrize("script", ENDS)
async def test_an_ended_run_holds_no_token_and_no_lease(script: str, hot: Driver) -> None:
    run = await hot.running()
    assert (await ENDS[script](hot, run)).code == "OK"
    assert hot.field(run.tx_id, "token") == ""
    assert hot.score("processing", run.tx_id) is None


@pytest.mark.parametrize("script", WITH_TOKEN)
async def test_a_zombie_changes_nothing(script: str, hot: Driver) -> None:
    zombie = await hot.running()
    await hot.lose_lease(zombie)
    await hot.take_one(zombie.tx_id, node="n2", alone=True)
    before = await _state(hot, zombie.tx_id)
    assert (await WITH_TOKEN[script](hot, zombie)).code == "STALE_TOKEN"
    assert await _state(hot, zombie.tx_id) == before


@pytest.mark.parametrize("script", WITH_TOKEN)
async def test_an_empty_token_is_nobodys(script: str, hot: Driver) -> None:
    run = await hot.running()
    await hot.requeue(run)
    run.token = NO_TOKEN
    assert (await WITH_TOKEN[script](hot, run)).code == "STALE_TOKEN"


@pytest.mark.parametrize("script", ENDS)
async def test_the_same_end_again_gets_the_same_answer_also_when_others_have_run_it_since(
    script: str, hot: Driver
) -> None:
    run = await hot.running()
    first = await ENDS[script](hot, run)
    if hot.phase(run.tx_id) == "queued":
        await hot.take(node="n2")
    again = await ENDS[script](hot, run)
    assert (again.code, again.text) == ("ALREADY", f"OK {first.text}")


@pytest.mark.parametrize("late", WITH_TOKEN)
@pytest.mark.parametrize("script", ENDS)
async def test_an_ended_run_can_do_nothing_else(script: str, late: str, hot: Driver) -> None:
    """A step that did not notice the end is not told that its own call was done."""
    run = await hot.running()
    await ENDS[script](hot, run)
    if late != script:
        assert (await WITH_TOKEN[late](hot, run)).code == "STALE_TOKEN"


async def test_a_wait_that_was_woken_at_once_says_so_again(hot: Driver) -> None:
    run = await hot.running()
    await hot.set_switch(run.tx_id, "go")
    first = await hot.wait(run, "go")
    again = await hot.wait(run, "go")
    assert (first.code, again.code, again.text) == ("WOKEN", "ALREADY", f"WOKEN {first.text}")


@pytest.mark.parametrize("script", WITH_TOKEN)
async def test_a_run_of_something_evicted_is_stale_and_makes_no_ghost(script: str, hot: Driver) -> None:
    run = await hot.running()
    await hot.sleep(run, 1_000_000)
    await hot.evict(run.tx_id)
    if script != "sleep":
        assert (await WITH_TOKEN[script](hot, run)).code in ("STALE_TOKEN", "NO_STATE")
    assert not hot.raw.exists(hot.key("state", tx_id=run.tx_id))


# ── what a rerun is given ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_checkpoint_is_where_a_rerun_goes_on(hot: Driver) -> None:
    run = await hot.running()
    assert (await hot.checkpoint(run, undo_group="main")).code == "OK"
    await hot.lose_lease(run)
    again = await hot.take_one(run.tx_id, alone=True)
    assert (again.event.decode(), again.state) == (GO_ON, b'{"flow":[1]}')


async def test_a_checkpoint_schedules_archiving_without_removal(hot: Driver) -> None:
    run = await hot.running()
    await hot.checkpoint(run)
    assert hot.score("to_archive", run.tx_id) == hot.clock.now_ms()
    assert hot.phase(run.tx_id) == "running"


async def test_a_checkpoint_is_not_seen_by_clients(hot: Driver) -> None:
    run = await hot.running()
    before = await _state(hot, run.tx_id)
    await hot.checkpoint(run)
    after = await _state(hot, run.tx_id)
    assert after["sequence"] == before["sequence"]
    assert int(after["version"]) > int(before["version"])


async def test_a_parked_run_that_stored_nothing_is_given_the_same_again(hot: Driver) -> None:
    parent, branches = await hot.joining(2)
    for branch in branches:
        await hot.complete(branch)
    run = await hot.take_one(parent)
    assert (await hot.park(run)).code == "OK"
    await hot.retry(parent)
    again = await hot.take_one(parent)
    assert (again.event, again.join) == (run.event, run.join) != (run.event, {})


async def test_a_parked_sleeper_is_told_again_why_it_woke(hot: Driver) -> None:
    run = await hot.running()
    await hot.sleep(run)
    await hot.wake(run.tx_id)
    run = await hot.take_one(run.tx_id)
    await hot.park(run)
    await hot.retry(run.tx_id)
    assert (await hot.take_one(run.tx_id)).woken == "operator"


async def test_the_reason_for_parking_can_be_read(hot: Driver) -> None:
    tx_id = await hot.parked()
    found = await hot.get(tx_id)
    assert not isinstance(found, Result)
    assert json.loads(found.parked) == {"reason": "it broke", "from": "running", "at": hot.clock.now_ms()}


async def test_a_retry_may_bring_an_edited_document(hot: Driver) -> None:
    tx_id = await hot.parked()
    await hot.retry(tx_id, b'{"edited":true}')
    assert (await hot.take_one(tx_id)).state == b'{"edited":true}'


async def test_ending_a_parked_one_leaves_nothing_of_its_join(hot: Driver) -> None:
    parent, [branch] = await hot.joining(1)
    await hot.complete(branch)
    for _ in range(hot.store.settings.attempts_max + 1):
        await hot.lose_lease(await hot.take_one(parent, alone=True))
    assert hot.phase(parent) == "exception"
    assert (await hot.end_parked(parent)).code == "OK"
    assert not hot.raw.exists(hot.key("join", tx_id=parent))


async def test_an_id_without_a_state_leaves_the_exception_list_when_it_is_ended(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    hot.raw.delete(hot.key("state", tx_id=tx_id))
    await hot.take()
    assert (await hot.retry(tx_id)).code == "NO_STATE"
    ended = await hot.end_parked(tx_id)
    assert (ended.code, ended.text) == ("OK", "")
    assert hot.score("exceptions", tx_id) is None


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_equal_report_changes_nothing(hot: Driver) -> None:
    run = await hot.running(webhook='{"url":"u","progress":true}')
    await hot.report_progress(run, '{"a":1,"b":[2]}')
    before = await _state(hot, run.tx_id)
    hot.raw.delete(hot.key("webhook", tx_id=run.tx_id), hot.key("webhooks"))
    hot.clock.advance(1_000)
    assert (await hot.report_progress(run, '{"a":1,"b":[2]}')).code == "SAME"
    assert await _state(hot, run.tx_id) == before
    assert not hot.raw.exists(hot.key("webhook", tx_id=run.tx_id), hot.key("webhooks"))


async def test_progress_raises_the_sequence(hot: Driver) -> None:
    run = await hot.running()
    first = await hot.report_progress(run, "1")
    second = await hot.report_progress(run, "2")
    assert int(second.text) > int(first.text)
    assert hot.field(run.tx_id, "sequence") == second.text


# ── versions ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_versions_grow_when_the_clock_goes_back(hot: Driver) -> None:
    run = await hot.running()
    hot.clock.advance(-10_000)
    before = int(hot.field(run.tx_id, "version"))
    for result in (await hot.checkpoint(run), await hot.report_progress(run), await hot.requeue(run)):
        assert int(result.text) == before + 1
        before += 1
    hot.clock.advance(60_000)
    assert int((await hot.complete(await hot.take_one(run.tx_id))).text) >= hot.clock.now_ms()


async def test_a_version_is_stored_in_full(hot: Driver) -> None:
    """Lua joins numbers to texts with 14 digits; a clock that is far off needs more."""
    hot.clock.advance(10**15)
    run = await hot.running(deadline_in_ms=7)
    now = hot.clock.now_ms()
    assert len(str(now)) == 16
    assert run.started_at_ms == now
    assert hot.field(run.tx_id, "deadline") == str(now + 7)
    await hot.complete(run)
    assert int(hot.field(run.tx_id, "version")) >= now
    assert (await hot.complete(run)).text == f"OK {hot.field(run.tx_id, 'version')}"
