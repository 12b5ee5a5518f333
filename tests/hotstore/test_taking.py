"""Dequeue: in order, out before in, nobody starves, and nothing is lost with a reply."""

import json
from dataclasses import replace

import pytest
from driver import Driver

from datp.hotstore.store import Taken


def _ids(taken: list[Taken]) -> list[str]:
    return [one.tx_id for one in taken]


async def _returned(hot: Driver, count: int) -> list[str]:
    """Transactions in the out queue."""
    await hot.queued(count, group="elsewhere")
    runs = (await hot.take(count, group="elsewhere")).taken
    for run in runs:
        await hot.requeue(run, "out")
    return _ids(runs)


# ── the same turn again ──────────────────────────────────────────────────────────────────────────────────────────


async def test_after_a_lost_reply_the_same_turn_gets_the_same_items(hot: Driver) -> None:
    ids = await hot.queued(5)
    first = await hot.take(3, turn=7)
    again = await hot.take(3, turn=7)
    assert _ids(first.taken) == _ids(again.taken) == ids[:3]
    assert first.taken == again.taken
    assert _ids((await hot.take(3, turn=8)).taken) == ids[3:]


async def test_a_turn_that_is_sent_again_hands_over_only_what_still_runs(hot: Driver) -> None:
    ids = await hot.queued(3)
    first = await hot.take(3, turn=7)
    await hot.complete(first.taken[1])
    assert _ids((await hot.take(3, turn=7)).taken) == [ids[0], ids[2]]


async def test_each_lane_has_its_own_last_turn(hot: Driver) -> None:
    ids = await hot.queued(2)
    await hot.take(1, lane="0", turn=1)
    await hot.take(1, lane="1", turn=2)
    assert _ids((await hot.take(1, lane="0", turn=1)).taken) == ids[:1]
    assert _ids((await hot.take(1, lane="1", turn=2)).taken) == ids[1:]


async def test_a_turn_that_took_nothing_may_take_something_when_it_is_sent_again(hot: Driver) -> None:
    assert (await hot.take(1, turn=1)).taken == []
    ids = await hot.queued()
    assert _ids((await hot.take(1, turn=1)).taken) == ids


# ── order ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_was_queued_first_is_taken_first(hot: Driver) -> None:
    ids = await hot.queued(10)
    taken = [tx_id for want in (1, 3, 6) for tx_id in _ids((await hot.take(want)).taken)]
    assert taken == ids


async def test_out_goes_before_in(hot: Driver) -> None:
    started, returned = await hot.queued(3), await _returned(hot, 3)
    assert _ids((await hot.take(6)).taken) == [*returned, *started]


@pytest.mark.parametrize("want", [1, 2, 3, 8, 20])
async def test_every_kth_item_is_an_in_over_turns_of_any_size(want: int, hot: Driver) -> None:
    share = hot.store.settings.in_share
    started, returned = await hot.queued(10), await _returned(hot, 70)
    taken: list[str] = []
    while len(taken) < 40:
        taken += _ids((await hot.take(want)).taken)
        assert len([tx_id for tx_id in taken if tx_id in started]) == len(taken) // share
    assert [tx_id for tx_id in taken if tx_id in returned] == returned[: len(taken) - len(taken) // share]


async def test_the_share_is_not_counted_while_only_one_queue_has_some(hot: Driver) -> None:
    await _returned(hot, 7)
    await hot.take(7)
    started, returned = await hot.queued(1), await _returned(hot, 1)
    assert _ids((await hot.take(2)).taken) == [*returned, *started]


async def test_what_lost_its_lease_stands_first_again_in_its_order(hot: Driver) -> None:
    ids = await hot.queued(5)
    runs = (await hot.take(3)).taken
    await hot.lose_lease(*runs)
    assert hot.raw.lrange(hot.key("queue", queue="In", group="main"), 0, -1) == ids


async def test_what_is_given_back_stands_first_again_in_its_order_and_no_loss_is_counted(hot: Driver) -> None:
    ids = await hot.queued(5)
    runs = (await hot.take(3)).taken
    assert [result.code for result in await hot.give_back(*runs)] == ["OK"] * 3
    again = (await hot.take(5)).taken
    assert _ids(again) == ids
    assert {run.losses for run in again} == {0}


async def test_no_more_documents_are_taken_than_there_is_room_for(hot: Driver) -> None:
    hot.store.settings = replace(hot.store.settings, batch_bytes_max=2_500)
    ids = await hot.queued(7)
    for tx_id, size in zip(ids, (1_000, 1_000, 1_000, 5_000, 10, 10, 10), strict=True):
        hot.raw.hset(hot.key("state", tx_id=tx_id), "state", "x" * size)
    assert _ids((await hot.take(10)).taken) == ids[:2]
    assert _ids((await hot.take(10)).taken) == ids[2:3]
    assert _ids((await hot.take(10)).taken) == ids[3:4], "one that is larger is taken by itself"
    last = await hot.take(10)
    assert (_ids(last.taken), last.is_left) == (ids[4:], False)


# ── one whose lease was lost ─────────────────────────────────────────────────────────────────────────────────────


async def _suspect(hot: Driver) -> str:
    run = await hot.running()
    await hot.lose_lease(run)
    return run.tx_id


async def test_one_that_lost_its_lease_is_taken_only_by_a_node_that_runs_nothing(hot: Driver) -> None:
    suspect = await _suspect(hot)
    await hot.queued(2)
    refused = await hot.take(3)
    assert (refused.taken, refused.suspect) == ([], True)
    alone = await hot.take(3, alone=True)
    assert _ids(alone.taken) == [suspect]
    assert alone.taken[0].losses == 1


async def _suspects(hot: Driver, count: int) -> list[str]:
    """What a node had in hand when it died, in its order."""
    await hot.queued(count)
    runs = (await hot.take(count)).taken
    await hot.lose_lease(*runs)
    return _ids(runs)


async def test_those_of_one_node_are_tried_together_and_no_others_with_them(hot: Driver) -> None:
    most = hot.store.settings.together_max
    suspects = await _suspects(hot, most + 2)
    await hot.queued(2)
    first = await hot.take(100, alone=True)
    assert (_ids(first.taken), first.suspect) == (suspects[:most], True)
    second = await hot.take(100, alone=True)
    assert (_ids(second.taken), second.suspect) == (suspects[most:], True)
    assert len((await hot.take(100)).taken) == 2


async def test_those_that_lost_a_lease_in_such_company_are_tried_one_by_one(hot: Driver) -> None:
    [one, other, third] = await _suspects(hot, 3)
    runs = (await hot.take(2, alone=True)).taken
    assert _ids(runs) == [one, other]
    await hot.lose_lease(*runs)
    assert [hot.field(tx_id, "losses") for tx_id in (one, other, third)] == ["2", "2", "1"]
    for tx_id in (one, other, third):
        assert _ids((await hot.take(5, alone=True)).taken) == [tx_id]


async def test_a_turn_that_comes_late_takes_nothing_that_nobody_waits_for(hot: Driver) -> None:
    """It was sent again, answered, and followed by others, before the first copy of it arrived."""
    ids = await hot.queued(3)
    assert _ids((await hot.take(1, turn=5)).taken) == ids[:1]
    assert _ids((await hot.take(1, turn=7)).taken) == ids[1:2]
    assert (await hot.take(1, turn=5)).taken == []
    assert _ids((await hot.take(1, turn=8)).taken) == ids[2:]


async def test_what_stands_before_it_is_taken_first(hot: Driver) -> None:
    suspect = await _suspect(hot)
    returned = await _returned(hot, 2)
    first = await hot.take(5, alone=True)
    assert (_ids(first.taken), first.suspect) == (returned, True)
    assert _ids((await hot.take(5, alone=True)).taken) == [suspect]


async def test_saving_state_clears_the_suspicion(hot: Driver) -> None:
    suspect = await _suspect(hot)
    run = await hot.take_one(suspect, alone=True)
    await hot.checkpoint(run)
    await hot.give_back(run)
    assert (await hot.take_one(suspect)).losses == 0


async def test_one_that_waits_for_a_node_of_its_own_keeps_its_turn(hot: Driver) -> None:
    """Otherwise a steady stream of returns would starve it: its turn would pass whenever a busy node meets it."""
    suspect = await _suspect(hot)
    await _returned(hot, 40)
    taken: list[str] = []
    for _ in range(2 * hot.store.settings.in_share):
        met = await hot.take(1)
        taken += _ids((await hot.take(1, alone=True)).taken if met.suspect else met.taken)
    assert suspect in taken


# ── what else is handed over ─────────────────────────────────────────────────────────────────────────────────────


async def test_the_taken_carry_what_a_run_needs(hot: Driver) -> None:
    [tx_id] = await hot.queued(external_id="e", deadline_in_ms=9_000)
    await hot.set_switch(tx_id, "a b", '"x y,z"')
    run = await hot.take_one(tx_id, turn=5)
    assert (run.token, run.state, json.loads(run.event)["kind"]) == ("n1.5.1", b'{"flow":[]}', "start")
    assert (run.owner, run.type, run.external_id, run.durability) == ("acme", "order", "e", "hot")
    assert run.deadline_ms == run.started_at_ms + 9_000
    assert [value.partition(" ")[2] for value in run.switches.values()] == ['"x y,z"']


async def test_the_bell_rings_again_while_work_is_left(hot: Driver) -> None:
    await hot.queued(2)
    hot.raw.delete(hot.key("bell", group="main"))
    assert (await hot.take(1)).is_left
    assert hot.raw.llen(hot.key("bell", group="main")) == 1
    hot.raw.delete(hot.key("bell", group="main"))
    assert not (await hot.take(1)).is_left
    assert hot.raw.llen(hot.key("bell", group="main")) == 0


async def test_admin_events_are_given_until_they_are_answered(hot: Driver) -> None:
    home = hot.store.home("n1")
    async with hot.store.turn() as turn:
        turn.send_admin([("n1", '{"id":"e1"}'), ("n1", '{"id":"e2"}')])
    for _ in range(2):
        assert (await hot.take(partition=home)).admin == [b'{"id":"e1"}', b'{"id":"e2"}']
    async with hot.store.turn() as turn:
        turn.answer_admin(home, "n1", [('{"id":"e1"}', "e1", '{"fine":true}')])
    assert (await hot.take(partition=home)).admin == [b'{"id":"e2"}']
    async with hot.store.turn() as turn:
        answers = turn.read_answers(home, "e1")
    assert answers.value == {"n1": b'{"fine":true}'}


async def test_a_cancelled_one_is_dropped_from_its_queue_when_it_is_met(hot: Driver) -> None:
    first, second, third = await hot.queued(3)
    await hot.cancel(second)
    assert _ids((await hot.take(3)).taken) == [first, third]
    assert hot.raw.smembers(hot.key("withdrawn")) == set()


async def test_a_cancelled_one_is_dropped_also_when_its_state_is_gone(hot: Driver) -> None:
    """The queue was so slow that it ended, was archived, and its time in memory was over."""
    [tx_id] = await hot.queued()
    await hot.cancel(tx_id)
    hot.raw.delete(hot.key("state", tx_id=tx_id))
    for place in ("to_archive", "started"):
        hot.raw.zrem(hot.key(place), tx_id)
    assert (await hot.take()).taken == []
    assert hot.score("exceptions", tx_id) is None


async def test_one_that_is_queued_again_where_it_was_withdrawn_is_run_once(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    run = await hot.take_one(tx_id)
    await hot.requeue(run, "out", undo_group="main")
    await hot.cancel(tx_id)  # withdrawn from the out queue, and put there again with its verdict
    assert hot.raw.lrange(hot.key("queue", queue="Out", group="main"), 0, -1) == [tx_id, tx_id]
    taken = (await hot.take(5)).taken
    assert [(one.tx_id, one.verdict) for one in taken] == [(tx_id, "cancelled")]
    assert not hot.raw.exists(hot.key("queue", queue="Out", group="main"), hot.key("withdrawn"))
