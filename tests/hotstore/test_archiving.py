"""To SQL and back: what was stored is acknowledged by its version, and SQL's word counts where it is ahead."""

from collections.abc import Awaitable, Callable
from typing import Final

import pytest
from driver import LATER_MS, Driver

from datp.hotstore.store import Archivable, ArchiveAck
from datp.model.status import Phase


async def _completed(hot: Driver, count: int = 1) -> list[str]:
    ids = await hot.queued(count)
    for run in (await hot.take(count)).taken:
        await hot.complete(run)
    return ids


def _claimed(claimed: list[Archivable]) -> list[str]:
    return [one.tx_id for one in claimed]


# ── final ones ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_final_state_is_due_after_a_short_delay(hot: Driver) -> None:
    [tx_id] = await _completed(hot)
    hot.clock.advance(hot.store.settings.archive_delay_ms - 1)
    assert (await hot.archive()).claimed == []
    hot.clock.advance(1)
    assert _claimed((await hot.archive()).claimed) == [tx_id]


async def test_a_final_state_has_its_ttl_once_sql_holds_it_and_reading_renews_it(hot: Driver) -> None:
    [tx_id] = await _completed(hot)
    name = hot.key("state", tx_id=tx_id)
    archivable = await hot.claim(tx_id)
    assert hot.raw.pttl(name) == -1
    await hot.get(tx_id)
    assert hot.raw.pttl(name) == -1
    await hot.archive(ArchiveAck(tx_id, archivable.version, 0))
    assert 0 < hot.raw.pttl(name) <= hot.store.settings.state_ttl_ms
    hot.raw.pexpire(name, 5_000)
    await hot.get(tx_id)
    assert hot.raw.pttl(name) > hot.store.settings.state_ttl_ms - 5_000


async def test_what_a_poll_told_is_in_the_same_write(hot: Driver) -> None:
    [tx_id] = await _completed(hot)
    await hot.get(tx_id, replied_to="acme")
    archivable = await hot.claim(tx_id)
    assert int(archivable.fields["notified_at"]) > 0


async def test_an_acknowledgement_of_an_older_version_gives_no_ttl(hot: Driver) -> None:
    run = await hot.running()
    await hot.checkpoint(run)
    snapshot = await hot.claim(run.tx_id)
    await hot.complete(run)
    [result] = (await hot.archive(ArchiveAck(run.tx_id, snapshot.version, 0), want=0)).acknowledged
    assert result.code == "CHANGED"
    assert hot.raw.pttl(hot.key("state", tx_id=run.tx_id)) == -1
    assert hot.score("to_archive", run.tx_id) is not None


async def test_a_claim_that_is_never_acknowledged_is_due_again(hot: Driver) -> None:
    [tx_id] = await _completed(hot)
    first = await hot.claim(tx_id)
    assert (await hot.archive()).claimed == []
    hot.clock.advance(hot.store.settings.archive_claim_ms)
    assert (await hot.archive()).claimed == [first]


async def test_an_acknowledgement_counts_whoever_brings_it(hot: Driver) -> None:
    """The version decides, not the role: one that has lost the role may still say what it has stored."""
    [tx_id] = await _completed(hot)
    archivable = await hot.claim(tx_id)
    reply = await hot.archive(ArchiveAck(tx_id, archivable.version, 0), node="a2")
    assert (reply.has_role, [result.code for result in reply.acknowledged]) == (False, ["OK"])


async def test_no_more_than_wanted_are_claimed_oldest_first(hot: Driver) -> None:
    first, second, third = [(await _completed(hot))[0] for _ in range(3)]
    hot.clock.advance(LATER_MS)
    assert _claimed((await hot.archive(want=2)).claimed) == sorted([first, second])
    assert _claimed((await hot.archive(want=2)).claimed) == [third]


# ── the two locks ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_one_archiver_has_the_role_as_long_as_it_calls(hot: Driver) -> None:
    for _ in range(10):
        assert (await hot.archive(node="a1")).has_role
        assert not (await hot.archive(node="a2")).has_role
        hot.clock.advance(hot.store.settings.archive_lock1_ms - 1)


async def test_after_the_first_lock_nobody_is_given_work_until_the_second_has_ended(hot: Driver) -> None:
    await hot.archive(node="a1")
    hot.clock.advance(hot.store.settings.archive_lock1_ms)
    assert not (await hot.archive(node="a1")).has_role
    assert not (await hot.archive(node="a2")).has_role
    hot.clock.advance(hot.store.settings.archive_lock2_ms - hot.store.settings.archive_lock1_ms)
    assert (await hot.archive(node="a2")).has_role
    assert not (await hot.archive(node="a1")).has_role


async def test_an_archiver_that_stops_gives_the_role_away(hot: Driver) -> None:
    await hot.archive(node="a1")
    await hot.archive(node="a2", want=0)
    assert not (await hot.archive(node="a2")).has_role
    await hot.archive(node="a1", want=0)
    assert (await hot.archive(node="a2")).has_role


async def test_each_partition_has_its_own_archiver(hot: Driver) -> None:
    assert (await hot.archive(node="a1", partition=0)).has_role
    assert (await hot.archive(node="a2", partition=1)).has_role


# ── adopt ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _queued(hot: Driver) -> str:
    [tx_id] = await hot.queued(external_id="e", deadline_in_ms=LATER_MS)
    return tx_id


async def _running(hot: Driver) -> str:
    return (await hot.running(external_id="e", deadline_in_ms=LATER_MS)).tx_id


async def _sleeping(hot: Driver) -> str:
    run = await hot.running(external_id="e", deadline_in_ms=LATER_MS)
    await hot.sleep(run, 10_000)
    return run.tx_id


async def _waiting(hot: Driver) -> str:
    run = await hot.running(external_id="e")
    await hot.set_switch(run.tx_id, "s", '"x y"')
    await hot.wait(run)
    return run.tx_id


async def _evicted(hot: Driver) -> str:
    return (await hot.evicted(external_id="e")).tx_id


async def _parked(hot: Driver) -> str:
    return await hot.parked(external_id="e", deadline_in_ms=LATER_MS)


async def _ended(hot: Driver) -> str:
    run = await hot.running(external_id="e")
    await hot.complete(run)
    return run.tx_id


async def _lost(hot: Driver) -> str:
    """Known to SQL alone: the store has lost its last second."""
    return hot.new_id()


STORED: Final[dict[str, Callable[[Driver], Awaitable[str]]]] = {
    Phase.QUEUED: _queued,
    Phase.RUNNING: _running,
    Phase.SLEEPING: _sleeping,
    Phase.WAITING: _waiting,
    Phase.EXCEPTION: _parked,
    Phase.COMPLETE: _ended,
}
BEFORE: Final[dict[str, Callable[[Driver], Awaitable[str]]]] = {**STORED, "evicted": _evicted, "lost": _lost}

AFTER: Final = {phase: "queued" if phase in ("queued", "running") else phase for phase in STORED}
"""Where it was in SQL → where it is adopted to; what ran is queued."""


async def _copy_of(hot: Driver, stored: str, tx_id: str) -> Archivable:
    """What SQL holds: a transaction of another store that was in this phase."""
    other = await STORED[stored](hot)
    copy = hot.copy(other)
    for name in hot.raw.scan_iter():
        if not name.startswith("metaH:"):
            hot.raw.delete(name)
    return Archivable(tx_id, copy.version, copy.fields, copy.switches, copy.join)


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("before", [one for one in BEFORE if one != "complete"])
async def test_sqls_state_replaces_the_stores_wherever_it_is(before: str, stored: str, hot: Driver) -> None:
    """The fixture checks that nothing is left of where it was."""
    copy = await _copy_of(hot, stored, "")
    copy.tx_id = await BEFORE[before](hot)
    version = copy.version + LATER_MS
    result = await hot.adopt(copy, version)
    assert (result.code, result.text) == ("OK", str(version))
    assert hot.phase(copy.tx_id) == AFTER[stored]
    assert hot.field(copy.tx_id, "token") == ""
    assert hot.field(copy.tx_id, "version") == str(version)


async def test_an_adopted_transaction_is_run_once_though_it_was_queued(hot: Driver) -> None:
    tx_id = await _queued(hot)
    for ahead in (1, 2, 3):
        await hot.adopt(hot.copy(tx_id), hot.copy(tx_id).version + ahead)
    assert [taken.tx_id for taken in (await hot.take(10)).taken] == [tx_id]


async def test_whoever_ran_it_before_can_not_write_any_more(hot: Driver) -> None:
    run = await hot.running()
    copy = hot.copy(run.tx_id)
    await hot.adopt(copy, copy.version + 1)
    assert (await hot.complete(run)).code == "STALE_TOKEN"


async def test_an_adopted_joiner_waits_for_its_branches(hot: Driver) -> None:
    parent, branches = await hot.joining(2)
    await hot.complete(branches[0])
    copy = hot.copy(parent)
    assert (await hot.adopt(copy, copy.version + 1)).code == "OK"
    assert hot.phase(parent) == "joining"
    await hot.complete(branches[1])
    assert len((await hot.take_one(parent)).join) == 4 + 2


async def test_an_adopted_run_with_a_verdict_is_due(hot: Driver) -> None:
    run = await hot.running(deadline_in_ms=LATER_MS)
    await hot.cancel(run.tx_id)
    copy = hot.copy(run.tx_id)
    await hot.adopt(copy, copy.version + 1)
    assert await hot.reaped() == [(run.tx_id, "OK", "cancelled")]


async def test_adopting_an_old_one_leaves_the_external_id_to_the_newer(hot: Driver) -> None:
    """Its own time was over, and another transaction has started with the same externalId since."""
    copy = await _copy_of(hot, "complete", hot.new_id())
    [newer] = await hot.queued(external_id="e")
    await hot.adopt(copy, copy.version)
    assert (await hot.find("e")).text == newer
    assert hot.raw.pttl(hot.key("external_id", owner="acme", external_id="e")) == -1


async def test_an_adopted_sleeper_is_evicted_again_later(hot: Driver) -> None:
    tx_id = await _sleeping(hot)
    copy = hot.copy(tx_id)
    await hot.adopt(copy, copy.version + 1)
    assert (await hot.evict(tx_id)).version == copy.version + 1


async def test_an_adopted_final_one_has_its_ttl_and_its_external_ids_period(hot: Driver) -> None:
    copy = await _copy_of(hot, "complete", hot.new_id())
    await hot.adopt(copy, copy.version)
    assert hot.raw.pttl(hot.key("state", tx_id=copy.tx_id)) > 0
    assert hot.raw.pttl(hot.key("external_id", owner="acme", external_id="e")) > 0
