"""The checker sees whatever is out of order, and nothing else."""

import asyncio
from collections.abc import Callable
from typing import Final

import pytest
from driver import LATER_MS, Driver

from datp.hotstore.invariants import REQUIRED, TABLE, broken_invariants
from datp.model.status import Phase

Damage = Callable[[Driver, str], object]


def test_the_table_has_a_row_for_every_phase() -> None:
    assert set(TABLE) == {*Phase, "evicted", "gone"}
    assert set(REQUIRED) == set(Phase)


async def _one_of_each(hot: Driver) -> dict[str, str]:
    """A store with a transaction in every phase; phase → its id."""
    ids: dict[str, str] = {}
    run = await hot.running(group="a", external_id="sleeps")
    await hot.sleep(run, 60_000)
    ids["sleeping"] = run.tx_id
    run = await hot.running(group="a", deadline_in_ms=LATER_MS)
    await hot.set_switch(run.tx_id, "other")
    await hot.wait(run)
    ids["waiting"] = run.tx_id
    ids["joining"], branches = await hot.joining(2)
    ids["branch"] = branches[0].tx_id
    ids["exception"] = await hot.parked(group="a", deadline_in_ms=LATER_MS)
    run = await hot.running(group="a", external_id="ends", webhook='{"url":"u"}')
    await hot.complete(run)
    ids["complete"] = run.tx_id
    ids["running"] = (await hot.running(group="a", deadline_in_ms=LATER_MS)).tx_id
    [ids["queued"]] = await hot.queued(group="a", external_id="starts", deadline_in_ms=LATER_MS)
    [ids["withdrawn"]] = await hot.queued(group="a")
    await hot.cancel(ids["withdrawn"])
    return ids


async def test_a_store_with_a_transaction_in_every_phase_is_in_order(hot: Driver) -> None:
    await _one_of_each(hot)
    await hot.evicted(partition=0, group="b", external_id="away")
    assert await broken_invariants(hot.store) == []


async def test_two_empty_partitions_are_in_order(hot: Driver) -> None:
    assert await broken_invariants(hot.store) == []


def _set(field: str, value: str) -> Damage:
    return lambda hot, tx_id: hot.raw.hset(hot.key("state", tx_id=tx_id), field, value)


def _lose(field: str) -> Damage:
    return lambda hot, tx_id: hot.raw.hdel(hot.key("state", tx_id=tx_id), field)


def _put(place: str, score: float = 1) -> Damage:
    return lambda hot, tx_id: hot.raw.zadd(hot.key(place), {tx_id: score})


def _take(place: str) -> Damage:
    return lambda hot, tx_id: hot.raw.zrem(hot.key(place), tx_id)


def _list(queue: str, group: str = "a") -> Damage:
    return lambda hot, tx_id: hot.raw.rpush(hot.key("queue", queue=queue, group=group), tx_id)


def _unlist(hot: Driver, tx_id: str) -> object:
    return hot.raw.lrem(hot.key("queue", queue="In", group="a"), 0, tx_id)


def _expire(hot: Driver, tx_id: str) -> object:
    return hot.raw.expire(hot.key("state", tx_id=tx_id), 1000)


def _delete(name: str) -> Damage:
    return lambda hot, tx_id: hot.raw.delete(hot.key(name, tx_id=tx_id))


def _external_id(value: str | None, ttl_s: int = 0) -> Damage:
    def damage(hot: Driver, tx_id: str) -> object:
        name = hot.key("external_id", owner="acme", external_id=hot.field(tx_id, "external_id"))
        if value is None:
            return hot.raw.delete(name)
        return hot.raw.set(name, value or f"{tx_id} h1", ex=ttl_s or None)

    return damage


def _in_join(field: str, value: str) -> Damage:
    return lambda hot, tx_id: hot.raw.hset(hot.key("join", tx_id=tx_id), field, value)


DAMAGES: Final[list[tuple[str, Damage, str]]] = [
    # in a place too many
    ("queued", _put("processing"), "processingZ has it, and must not"),
    ("queued", _put("running"), "runningZ has it, and must not"),
    ("queued", _put("sleeping"), "sleepingZ has it, and must not"),
    ("queued", _put("joining"), "joiningZ has it, and must not"),
    ("queued", _put("exceptions"), "exceptionZ has it, and must not"),
    ("queued", _put("webhooks"), "webhooksZ has it, but webhookH lacks it"),
    ("running", _list("In"), "queue in a has it 1 times, and must have it 0 times"),
    ("sleeping", _list("Out"), "queue out a has it 1 times, and must have it 0 times"),
    ("sleeping", _put("deadlines"), "deadlineZ has it, and must not"),
    ("queued", _list("In"), "queue in a has it 2 times, and must have it 1 times"),
    ("queued", _list("Out"), "queue out a has it 1 times, and must have it 0 times"),
    ("withdrawn", _list("In"), "queue in a has it 2 times, and must have it 1 times"),
    ("complete", _put("deadlines"), "deadlineZ has it, and must not"),
    ("complete", _put("sleeping"), "sleepingZ has it, and must not"),
    # in a place too few
    ("queued", _unlist, "queue in a has it 0 times, and must have it 1 times"),
    ("queued", _take("deadlines"), "deadlineZ lacks it, and must have it"),
    ("withdrawn", _unlist, "queue in a has it 0 times, and must have it 1 times"),
    ("running", _take("processing"), "processingZ lacks it, and must have it"),
    ("running", _take("running"), "runningZ lacks it, and must have it"),
    ("running", _take("deadlines"), "deadlineZ lacks it, and must have it"),
    ("sleeping", _take("sleeping"), "sleepingZ lacks it, and must have it"),
    ("waiting", _take("sleeping"), "sleepingZ lacks it, and must have it"),
    ("joining", _take("joining"), "joiningZ lacks it, and must have it"),
    ("joining", _delete("join"), "joinH lacks it, and must have it"),
    ("exception", _take("exceptions"), "exceptionZ lacks it, and must have it"),
    ("exception", lambda hot, tx_id: hot.raw.hdel(hot.key("reasons"), tx_id), "exceptionH lacks it, and must have it"),
    ("complete", _take("to_archive"), "toArchiveZ lacks it, and must have it"),
    ("complete", _delete("webhook"), "webhooksZ has it, but webhookH lacks it"),
    # times that disagree
    ("sleeping", _put("sleeping", 5), "its score in sleepingZ is 5, and must be"),
    ("queued", _put("deadlines", 5), "its score in deadlineZ is 5, and must be"),
    # hashes that lack something, or have too much
    *((phase, _lose(field), f"its hash has no {field}") for phase, fields in REQUIRED.items() for field in fields[1:]),
    ("queued", _lose("phase"), "has the phase ''"),
    ("queued", _set("phase", "resting"), "has the phase 'resting'"),
    ("queued", _lose("state"), "its hash has no document"),
    ("queued", _set("token", "n1.1.1"), "it has the token n1.1.1, and must have none"),
    ("queued", _set("status", "success"), "must have none before the end"),
    ("queued", _set("sequence", "9999999999999"), "is below its sequence"),
    ("queued", _expire, "a TTL has it, and must not"),
    ("complete", _set("status", "waiting"), "its status is waiting, and must be final"),
    ("complete", _expire, "toArchiveZ has it, and must not"),
    ("complete", lambda hot, tx_id: hot.raw.hset(hot.key("switches", tx_id=tx_id), "a", "1 1"), "it has a switchH"),
    ("waiting", _lose("switches"), "it has a switchH, and must have none without the field switches"),
    ("waiting", lambda hot, tx_id: hot.raw.hset(hot.key("evicted"), tx_id, "1"), "evictedH has it"),
    ("queued", _delete("state"), "is gone: "),
    ("sleeping", _delete("state"), "is gone: "),
    # externalIds
    ("queued", _external_id(None), "no externalId key acme:starts names it"),
    ("queued", _external_id("", 100), "externalId key acme:starts has a TTL"),
    ("complete", _external_id(""), "externalId key acme:ends has no TTL"),
    ("queued", _external_id("tx-00-1hf7yat00g0123456789abc h"), "tx-00-1hf7yat00g0123456789abc is gone"),
    ("queued", _lose("external_id"), "externalId key acme:starts names it, and must not"),
    # branches
    ("joining", _in_join(":open", "1"), "counts 1 open branches, and must count 2"),
    ("joining", _in_join(":won", "1"), "counts 1 branches that succeeded, and must count at most 0"),
    ("joining", _in_join(":order", "x"), "its joinH orders x"),
    ("joining", _in_join(":settled", "1"), "must have a verdict"),
    ("joining", _set("verdict", "cancelled"), "its open branches must have been cancelled"),
    ("branch", _delete("state"), "is open, but that is gone"),
    ("branch", _set("parent", "tx-00-1hf7yat00g0123456789abc"), "and must have this one"),
    ("branch", _lose("parent"), "has the parent None, and must have this one"),
]


@pytest.mark.corrupts
@pytest.mark.parametrize(
    ("whose", "damage", "sentence"),
    [pytest.param(whose, damage, sentence, id=f"{whose}: {sentence}") for whose, damage, sentence in DAMAGES],
)
async def test_what_is_out_of_order_is_told(whose: str, damage: Damage, sentence: str, hot: Driver) -> None:
    ids = await _one_of_each(hot)
    damage(hot, ids[whose])
    problems = await broken_invariants(hot.store)
    assert any(sentence in problem for problem in problems), problems
    assert all(problem.startswith("tx-") for problem in problems)


async def test_the_sentence_is_about_the_one_that_is_out_of_order(hot: Driver) -> None:
    ids = await _one_of_each(hot)
    hot.raw.zadd(hot.key("processing"), {ids["queued"]: 1})
    assert await broken_invariants(hot.store) == [
        f"{ids['queued']} is queued: processingZ has it, and must not have it"
    ]
    hot.raw.zrem(hot.key("processing"), ids["queued"])


@pytest.mark.corrupts
async def test_the_second_partition_is_looked_at_too(hot: Driver) -> None:
    [tx_id] = await hot.queued(partition=1)
    hot.raw.delete(hot.key("state", 1, tx_id=tx_id))
    hot.raw.zrem(hot.key("started", 1), tx_id)
    [problem] = await broken_invariants(hot.store)
    assert problem.startswith(f"{tx_id} is gone")


async def test_a_key_of_another_type_counts_as_no_state(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    name = hot.key("state", tx_id=tx_id)
    hot.raw.delete(name)
    hot.raw.set(name, "what is this?")
    assert {problem.split(":")[0] for problem in await broken_invariants(hot.store)} == {f"{tx_id} is gone"}
    await hot.take()  # parks it
    assert await broken_invariants(hot.store) == []


async def test_nothing_is_told_of_a_store_that_is_being_changed(hot: Driver) -> None:
    done = False

    async def change() -> None:
        nonlocal done
        for _ in range(40):
            run = await hot.running(deadline_in_ms=LATER_MS)
            await hot.sleep(run, 10)
            hot.clock.advance(10)
            await hot.wake_due()
            parent = await hot.take_one(run.tx_id)
            await hot.fork(parent, 3)
            for branch in (await hot.take(3, group="side")).taken:
                await hot.complete(branch)
            await hot.complete(await hot.take_one(run.tx_id))
        done = True

    async def check() -> None:
        while not done:
            assert await broken_invariants(hot.store) == []

    await asyncio.gather(change(), check())
