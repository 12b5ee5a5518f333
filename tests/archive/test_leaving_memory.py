"""Finished, sleeping and waiting transactions leave memory, and come back when they are touched."""

import asyncio
from typing import Any

import pytest
from worker.support import Engine, output_of, until

from datp.errors import Conflict, NotFound
from datp.hotstore.store import Found, Result
from datp.model.ids import TransactionId
from datp.steps import Context

A_LONG_TIME = "7d"


async def lay_out(eng: Engine) -> None:
    async def told(context: Context, input: Any) -> dict[str, Any]:
        switch = context.read_switch("go").value
        return {"by": context.woken_by, "go": switch, "input": input}

    eng.step("test/told", told)
    await eng.pipeline("waits", {"step": "util/wait", "with": {"switch": "go", "timeout": A_LONG_TIME}}, "test/told")
    await eng.pipeline("sleeps", {"step": "util/delay", "with": {"duration": "300ms"}}, "test/told")
    await eng.pipeline("long", {"step": "util/delay", "with": {"duration": A_LONG_TIME}}, "test/told")
    await eng.node(roles="worker,wakeup,archive")


async def known(eng: Engine, tx_id: TransactionId) -> Found | Result:
    async with eng.store.turn() as turn:
        reply = turn.get_state([tx_id])
    return reply.value[0]


async def evicted(eng: Engine, tx_id: TransactionId) -> None:
    """It has left memory."""

    async def gone() -> bool:
        found = await known(eng, tx_id)
        return isinstance(found, Result) and found.code == "EVICTED"

    await until(gone, f"{tx_id} left memory")


async def in_sql(eng: Engine, tx_id: TransactionId, phase: str) -> None:
    assert eng.archive is not None
    archive = eng.archive

    async def there() -> bool:
        found = await archive.read([tx_id])
        return tx_id in found and found[tx_id].fields["phase"].decode() == phase

    await until(there, f"SQL has {tx_id} {phase}")


# ── finished ones ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_has_ended_is_answered_from_sql_when_memory_has_forgotten_it(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo")
    await eng.node(roles="worker,archive")
    reply = await eng.run("one", {"a": [1, 2]}, external_id="e1")
    tx_id = TransactionId(reply.tx_id)
    await in_sql(eng, tx_id, "complete")

    async def expires() -> bool:
        found = await known(eng, tx_id)
        return isinstance(found, Found) and await _ttl(eng, tx_id) > 0

    await until(expires, "it has a TTL")
    await _forget(eng, tx_id)
    assert await eng.transactions.reply(tx_id) == reply
    assert output_of(reply) == {"a": [1, 2]}
    assert [entry["name"] for entry in (await eng.transactions.show(tx_id)).flow] == ["one", "s1"]
    assert await eng.transactions.find("e1", "acme") == tx_id, "by its externalId, while that key lives"
    with pytest.raises(Conflict, match="it has ended: success"):
        await eng.transactions.cancel(tx_id)
    with pytest.raises(Conflict, match="it has ended: success"):
        await eng.transactions.set_switch(tx_id, "go", True)
    assert isinstance(await known(eng, tx_id), Result), "nothing was written back"


async def test_what_neither_has_is_not_found(eng: Engine) -> None:
    with pytest.raises(NotFound):
        await eng.transactions.reply(TransactionId("tx-00-1hf7yat00g0123456789abcd"[:28]))


# ── sleepers and waiters ─────────────────────────────────────────────────────────────────────────────────────────


async def test_an_evicted_sleeper_wakes_on_time_and_goes_on(eng: Engine) -> None:
    await lay_out(eng)
    tx_id = await eng.start("sleeps", {"n": 1})
    await evicted(eng, tx_id)
    assert (await eng.transactions.reply(tx_id)).status == "sleeping"
    reply = await eng.final(tx_id)
    assert (reply.status, output_of(reply)["input"]) == ("success", {"n": 1})


async def test_a_poll_of_an_evicted_one_brings_nothing_back(eng: Engine) -> None:
    await lay_out(eng)
    tx_id = await eng.start("waits")
    await evicted(eng, tx_id)
    for _ in range(3):
        assert (await eng.transactions.reply(tx_id)).status == "waiting"
        assert (await eng.transactions.show(tx_id)).wake_switch == "go"
    assert isinstance(await known(eng, tx_id), Result)


async def test_a_switch_wakes_an_evicted_waiter(eng: Engine) -> None:
    await lay_out(eng)
    tx_id = await eng.start("waits", external_id="order 1")
    await evicted(eng, tx_id)
    assert await eng.transactions.set_switch(tx_id, "other", 7) == "OK"
    await evicted(eng, tx_id)
    assert await eng.transactions.set_switch(tx_id, "go", True) == "WOKEN"
    assert output_of(await eng.final(tx_id))["go"] is True


async def test_many_callers_set_the_switch_of_an_evicted_waiter_and_it_goes_on_once(eng: Engine) -> None:
    """While it is being woken, too: exactly one continuation, and no value is lost."""
    runs: list[str] = []

    async def once(context: Context) -> dict[str, Any]:
        runs.append(context.tx_id)
        return {name: context.read_switch(name).value for name in ("go", "a", "b", "c")}

    eng.step("test/once", once)
    await eng.pipeline(
        "waits",
        {"step": "util/wait", "with": {"switch": "go", "timeout": A_LONG_TIME}},
        {"step": "util/wait", "with": {"switch": "then", "timeout": A_LONG_TIME}},
        "test/once",
    )
    for _ in range(2):
        await eng.node(roles="worker,wakeup,archive")
    ids = await eng.start_many("waits", range(10))
    for tx_id in ids:
        await evicted(eng, tx_id)

    async def touch(tx_id: TransactionId) -> None:
        answers = await asyncio.gather(
            eng.transactions.set_switch(tx_id, "go", True),
            eng.transactions.set_switch(tx_id, "go", True),
            eng.transactions.set_switch(tx_id, "a", 1),
            eng.transactions.set_switch(tx_id, "b", "two"),
            eng.transactions.set_switch(tx_id, "c", False),
            eng.transactions.reply(tx_id),
        )
        assert sorted(str(answer) for answer in answers[:2]) == ["SAME", "WOKEN"]
        await eng.transactions.set_switch(tx_id, "then", True)

    await asyncio.gather(*map(touch, ids))
    assert await eng.finals(ids) == ["success"] * 10
    assert sorted(runs) == sorted(ids), "each went on once"
    for tx_id in ids:
        assert output_of(await eng.transactions.reply(tx_id)) == {"go": True, "a": 1, "b": "two", "c": False}


async def test_an_evicted_one_is_cancelled(eng: Engine) -> None:
    await lay_out(eng)
    tx_id = await eng.start("long")
    await evicted(eng, tx_id)
    await eng.transactions.cancel(tx_id, "we changed our minds")
    reply = await eng.final(tx_id)
    assert (reply.status, reply.note) == ("cancelled", "we changed our minds")


async def test_an_evicted_one_is_woken_by_an_operator(eng: Engine) -> None:
    await lay_out(eng)
    tx_id = await eng.start("long")
    await evicted(eng, tx_id)
    assert (await eng.transactions.wake(tx_id)).code == "WOKEN"
    reply = await until(lambda: eng.transactions.reply(tx_id), "it is told")
    assert reply.status in ("queued", "running", "sleeping", "success")


async def test_the_deadline_of_an_evicted_one_is_kept(eng: Engine) -> None:
    await lay_out(eng)
    tx_id = await eng.start("long", deadline="400ms")
    await evicted(eng, tx_id)
    assert (await eng.final(tx_id)).status == "timeout"


async def test_without_an_archive_what_left_memory_says_what_is_missing(eng: Engine) -> None:
    from datp.api.transactions import Transactions
    from datp.errors import DatabaseRefused

    await lay_out(eng)
    tx_id = await eng.start("waits")
    await evicted(eng, tx_id)
    without = Transactions(eng.store, eng.definitions)
    for touch in (without.reply(tx_id), without.set_switch(tx_id, "go", True), without.cancel(tx_id)):
        with pytest.raises(DatabaseRefused, match="DATP_DATABASE_URL"):
            await touch


async def _ttl(eng: Engine, tx_id: str) -> int:
    tag = eng.store.tags[int(tx_id[4], 32)]
    [ttl] = await eng.store.connection.read(int(tx_id[4], 32), [("PTTL", f"stateH:{tag}:{tx_id}")])
    return int(ttl)


async def _forget(eng: Engine, tx_id: str) -> None:
    """As if its TTL had run out."""
    from redis.asyncio import Redis

    tag = eng.store.tags[int(tx_id[4], 32)]
    async with Redis.from_url(eng.store.url) as redis:
        await redis.delete(f"stateH:{tag}:{tx_id}")
