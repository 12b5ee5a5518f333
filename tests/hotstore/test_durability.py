"""What is told when, and what may start, as SQL and the memory budget allow it."""

import pytest
from driver import LATER_MS, Driver

from datp.hotstore.store import ArchiveAck
from datp.model.ids import TransactionId
from datp.model.reply import Reply, reply_from

HOOK = '{"url":"https://example.com"}'


async def _reply(hot: Driver, tx_id: str) -> Reply:
    return reply_from(TransactionId(tx_id), (await hot.get(tx_id)).fields)


# ── durability journal: told once SQL holds it ───────────────────────────────────────────────────────────────────


async def test_an_end_is_told_once_sql_holds_it(hot: Driver) -> None:
    run = await hot.running(durability="journal", webhook=HOOK)
    before = await _reply(hot, run.tx_id)
    heard = hot.raw.pubsub()
    heard.ssubscribe(f"datp-notify:{hot.store.tags[0]}")
    heard.get_sharded_message(timeout=5)
    assert (await hot.complete(run)).code == "OK"
    assert await _reply(hot, run.tx_id) == before, "the same sequence, the same bytes"
    assert (await hot.webhooks()).claimed == []
    assert heard.get_sharded_message(timeout=0.05) is None

    archivable = await hot.claim(run.tx_id)
    assert await _reply(hot, run.tx_id) == before
    [told] = (await hot.archive(ArchiveAck(run.tx_id, archivable.version, 0))).acknowledged
    assert told.code == "OK"
    after = await _reply(hot, run.tx_id)
    assert (after.status, after.sequence, bytes(after.transaction_output)) == ("success", archivable.version, b"null")
    assert [tx_id for tx_id, _ in (await hot.webhooks()).claimed] == [run.tx_id]
    assert heard.get_sharded_message(timeout=5)["data"] == f"{run.tx_id} success {archivable.version}"
    heard.close()


async def test_it_is_given_to_the_archive_at_once(hot: Driver) -> None:
    run = await hot.running(durability="journal")
    await hot.complete(run)
    assert [one.tx_id for one in (await hot.archive()).claimed] == [run.tx_id]


async def test_an_end_that_is_not_told_yet_is_not_told_by_a_refusal(hot: Driver) -> None:
    run = await hot.running(durability="journal")
    await hot.complete(run)
    refusals = [await hot.cancel(run.tx_id), await hot.set_switch(run.tx_id)]
    assert [(refusal.code, refusal.text) for refusal in refusals] == [("FINAL", "")] * 2


async def test_a_poll_before_that_marks_nothing_as_replied(hot: Driver) -> None:
    run = await hot.running(durability="journal")
    await hot.complete(run)
    await hot.get(run.tx_id, replied_to="acme")
    assert hot.field(run.tx_id, "notified_at") is None


async def test_the_webhook_that_is_owed_is_known_to_the_archive(hot: Driver) -> None:
    [owed, not_owed] = [await hot.running(webhook=webhook) for webhook in (HOOK, "")]
    for run in (owed, not_owed):
        await hot.complete(run)
    hot.clock.advance(hot.store.settings.archive_delay_ms)
    claimed = {one.tx_id: one.is_owed for one in (await hot.archive()).claimed}
    assert claimed == {owed.tx_id: True, not_owed.tx_id: False}


async def test_a_final_state_that_is_adopted_owes_its_webhook_again(hot: Driver) -> None:
    run = await hot.running(webhook=HOOK)
    await hot.complete(run)
    archived = hot.copy(run.tx_id)
    hot.raw.delete(hot.key("webhook", tx_id=run.tx_id), hot.key("webhooks"))
    assert (await hot.adopt(archived, archived.version + 1, owed=1)).code == "OK"
    assert [tx_id for tx_id, _ in (await hot.webhooks()).claimed] == [run.tx_id]


# ── a join in SQL ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("durability", ["snapshot", "journal"])
async def test_a_joining_parent_is_archived_after_its_branches(durability: str, hot: Driver) -> None:
    run = await hot.running(durability=durability)
    await hot.fork(run, 3)
    hot.clock.advance(1)
    claimed = [one.tx_id for one in (await hot.archive()).claimed]
    assert len(claimed) == 4 and claimed[-1] == run.tx_id


async def test_a_snapshot_that_was_due_before_the_fork_takes_the_branches_along(hot: Driver) -> None:
    run = await hot.running()
    await hot.checkpoint(run)
    await hot.fork(run, 2)
    hot.clock.advance(1)
    claimed = [one.tx_id for one in (await hot.archive()).claimed]
    assert len(claimed) == 3 and claimed[-1] == run.tx_id


async def test_a_hot_fork_costs_sql_nothing(hot: Driver) -> None:
    run = await hot.running()
    await hot.fork(run, 2)
    hot.clock.advance(1)
    assert (await hot.archive()).claimed == []


async def test_a_branch_that_was_not_counted_is_counted_once_and_the_parent_goes_on(hot: Driver) -> None:
    parent, [one, other] = await hot.joining()
    await hot.uncounted(parent, one)
    await hot.complete(other)
    assert hot.phase(parent) == "joining"
    assert (await hot.join_branch(parent, one.tx_id)).code == "OK"
    assert (await hot.join_branch(parent, one.tx_id)).code == "NOT_JOINING"
    assert [run.tx_id for run in (await hot.take(10)).taken] == [parent]


# ── the memory budget ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_full_memory_starts_nothing_new_and_lets_the_rest_go_on(hot: Driver) -> None:
    run = await hot.running(external_id="e1")
    await hot.tell_memory(is_full=True, holds_for_ms=5_000)
    refused = await hot.start(external_id="e2")
    assert (refused.code, refused.text) == ("FULL", str(hot.clock.now_ms() + 5_000))
    assert hot.raw.exists(hot.key("external_id", owner="acme", external_id="e2")) == 0
    assert (await hot.start(run.tx_id)).code == "ALREADY", "a repetition is answered"
    assert (await hot.start(external_id="e1")).code == "DUPLICATE"
    assert (await hot.complete(run)).code == "OK"


async def test_what_was_told_of_memory_holds_for_a_while(hot: Driver) -> None:
    await hot.tell_memory(is_full=True, evict_percent=0, holds_for_ms=5_000)
    hot.clock.advance(5_000)
    assert (await hot.start()).code == "OK"
    await hot.tell_memory(is_full=True)
    await hot.tell_memory(is_full=False)
    assert (await hot.start()).code == "OK"


async def test_as_memory_fills_sleepers_leave_it_sooner(hot: Driver) -> None:
    run = await hot.running()
    await hot.tell_memory(evict_percent=25)
    await hot.sleep(run, LATER_MS)
    wanted = hot.clock.now_ms() + hot.store.settings.evict_after_ms // 4
    assert hot.score("to_archive", run.tx_id) == wanted


# ── what SQL has lost ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_sleeper_that_sql_has_lost_is_parked_by_its_id(hot: Driver) -> None:
    archived = await hot.evicted()
    assert (await hot.park_lost(archived.tx_id, archived.version)).code == "OK"
    assert hot.score("sleeping", archived.tx_id) is None
    found = await hot.get(archived.tx_id, whole=True)
    assert b"SQL has lost it" in found.parked and not found.fields


# ── a store that is being rebuilt ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.corrupts
async def test_only_an_empty_or_half_rebuilt_partition_takes_a_name(hot: Driver) -> None:
    async def rename(identity: str) -> str:
        async with hot.store.turn() as turn:
            reply = turn.rename_store(0, identity, "held")
        return reply.value

    assert await rename("other/1/2/1") == hot.store.identity, "one that is in use keeps its own"
    hot.raw.flushall()
    assert await rename("s/2/2/1/rebuilding") == "s/2/2/1/rebuilding"
    assert await rename("s/3/2/1/rebuilding") == "s/3/2/1/rebuilding", "a rebuild may begin again"
    assert await rename("s/3/2/1") == "s/3/2/1"
    assert await rename("s/4/2/1") == "s/3/2/1"
