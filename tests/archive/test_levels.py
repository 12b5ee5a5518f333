"""What SQL holds at each level of durability, and when."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from worker.support import Engine, until

from datp.api.transactions import Transactions
from datp.archive import migrate
from datp.archive.archive import Archive
from datp.archive.database import Database
from datp.archive.rebuild import rebuild
from datp.errors import Conflict
from datp.hotstore.store import Found, Store
from datp.model.ids import TransactionId
from datp.model.status import Phase

SLEEP = {"step": "util/delay", "with": {"duration": "200ms"}}


def sql(eng: Engine) -> Database:
    assert eng.archive is not None
    return eng.archive.database


async def lose_everything(eng: Engine) -> None:
    """The store is empty, and is rebuilt."""
    await eng.store.connection.close()
    from redis.asyncio import Redis

    async with Redis.from_url(eng.store.url) as redis:
        await redis.flushall()
    fresh = Store(eng.store.url, eng.settings)
    try:
        await rebuild(fresh, sql(eng))
    finally:
        await fresh.close()
    await eng.store.open()
    await eng.archive.open()  # type: ignore[union-attr]
    await eng.definitions.reload()


def journal_waits(eng: Engine, for_what: Callable[[TransactionId], Awaitable[bool]]) -> None:
    """Between the queueing of a start and its journal, the transaction gets on so far."""
    assert eng.archive is not None
    journal = eng.archive.journal

    async def wait_and_journal(tx_ids: list[TransactionId]) -> None:
        for tx_id in tx_ids:
            await until(lambda tx_id=tx_id: for_what(tx_id), f"{tx_id} got on")  # type: ignore[misc]
        await journal(tx_ids)

    eng.archive.journal = wait_and_journal  # type: ignore[method-assign,assignment]


async def phase_of(eng: Engine, tx_id: TransactionId) -> str:
    async with eng.store.turn() as turn:
        reply = turn.get_state([tx_id])
    found = reply.value[0]
    return found.fields["phase"].decode() if isinstance(found, Found) else found.code


# ── journal ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_journaled_start_is_in_sql_when_it_is_answered(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo", durability="journal")
    ids = await eng.start_many("one", range(5))
    assert {state.phase for state in (await sql(eng).read_states(ids)).values()} == {Phase.QUEUED}


async def test_a_start_that_has_ended_before_it_is_answered_is_in_sql_too(eng: Engine) -> None:
    """Nobody archives: what the answer promises must not hang on that."""
    await eng.pipeline("one", "util/echo", durability="journal")
    worker = await eng.node(roles="worker")

    async def ended(tx_id: TransactionId) -> bool:
        return await phase_of(eng, tx_id) == "complete"

    journal_waits(eng, ended)
    tx_id = await eng.start("one", {"a": 1})
    assert (await eng.transactions.reply(tx_id)).status == "running", "its end is told by whoever archives it"
    await worker.stop()
    await lose_everything(eng)
    reply = await eng.transactions.reply(tx_id)
    assert (reply.status, bytes(reply.transaction_output)) == ("success", b'{"a":1}')


async def test_one_that_slept_before_its_start_was_answered_wakes_on_time_after_a_loss(eng: Engine) -> None:
    """What the journal writes is whole: when it wakes, too."""
    await eng.pipeline("sleeps", SLEEP, durability="journal")
    worker = await eng.node(roles="worker")

    async def sleeps(tx_id: TransactionId) -> bool:
        return await phase_of(eng, tx_id) == "sleeping"

    journal_waits(eng, sleeps)
    tx_id = await eng.start("sleeps")
    await worker.stop()
    await lose_everything(eng)
    await eng.node(roles="worker,wakeup,archive")
    assert (await eng.final(tx_id)).status == "success"


async def test_a_journaled_end_is_told_only_when_sql_has_it(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo", durability="journal")
    await eng.node(roles="worker")
    tx_id = await eng.start("one")
    while await phase_of(eng, tx_id) != "complete":
        await asyncio.sleep(0.002)
    assert (await eng.transactions.reply(tx_id)).status == "running"
    await eng.node(roles="archive")
    assert (await eng.final(tx_id)).status == "success"
    assert (await sql(eng).read_states([tx_id]))[tx_id].is_final


async def test_a_switch_and_a_cancel_that_were_answered_survive_the_loss(eng: Engine) -> None:
    """Nobody runs or archives: what the answer promises must not hang on that."""
    await eng.pipeline("waits", {"step": "util/wait", "with": {"switch": "go", "timeout": "7d"}}, durability="journal")
    worker = await eng.node(roles="worker", evict_after_ms=60_000)
    one, two, three = await eng.start_many("waits", range(3))
    for tx_id in (one, two, three):
        await eng.phase(tx_id, "waiting")
    await worker.stop()
    assert await eng.transactions.set_switch(one, "go", True) == "WOKEN"
    assert await eng.transactions.set_switch(two, "other", "kept") == "OK"
    await eng.transactions.cancel(three, "not wanted")
    await lose_everything(eng)
    assert (await eng.transactions.show(two)).switches == {"other": "kept"}
    await eng.node(roles="worker,wakeup,archive")
    assert (await eng.final(one)).status == "success"
    assert (await eng.final(three)).status == "cancelled"


# ── snapshot and hot ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("durability", "is_there"), [("hot", False), ("snapshot", True), ("journal", True)])
async def test_a_requeue_is_in_sql_from_snapshot_on(durability: str, is_there: bool, eng: Engine) -> None:
    held = eng.held()
    await eng.definitions.save_group("other", {})
    await eng.pipeline("child", "test/held", nodeGroup="other")
    await eng.pipeline("two", "util/echo", {"pipeline": "child"}, durability=durability)
    await eng.node(roles="worker,archive")
    await eng.node(roles="worker", node_group="other")
    tx_id = await eng.start("two")
    await held.began()

    async def nothing_is_due() -> bool:
        async with eng.store.turn() as turn:
            reply = turn.get_state([tx_id], whole=True)
        found = reply.value[0]
        return isinstance(found, Found) and "to_archive" not in found.places

    await until(nothing_is_due, "what is to be archived is")
    found = await sql(eng).read_states([tx_id])
    assert (tx_id in found) == is_there
    if is_there:
        assert b"child" in found[tx_id].fields["state"], "as it was when it went to the other group"
    held.let_go()
    assert (await eng.final(tx_id)).status == "success"


async def test_the_level_is_the_pipelines_or_the_default(eng: Engine) -> None:
    await eng.pipeline("said", "util/echo", durability="journal")
    await eng.pipeline("unsaid", "util/echo")
    said, unsaid = await eng.start("said"), await eng.start("unsaid")
    assert set(await sql(eng).read_states([said, unsaid])) == {said}
    eng.store.settings = eng.with_settings(durability="journal")
    later = await eng.start("unsaid")
    assert set(await sql(eng).read_states([later])) == {later}


# ── the database is lost, and the store is not ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_new_database_takes_over_what_the_store_knows(eng: Engine, tmp_path: Path) -> None:
    """What is in memory goes on; a sleeper that had left it is gone, and an operator is told which."""
    held = eng.held()
    definition = await eng.pipeline("runs", "test/held")
    await eng.pipeline("waits", {"step": "util/wait", "with": {"switch": "go", "timeout": "7d"}})
    node = await eng.node(roles="worker,wakeup,archive")
    runs, waits = await eng.start("runs"), await eng.start("waits")
    await held.began()

    async def gone() -> bool:
        return await phase_of(eng, waits) == "EVICTED"

    await until(gone, "the waiter has left memory")
    held.let_go()
    await eng.final(runs)
    await node.stop()
    await eng.archive.close()  # type: ignore[union-attr]

    url = f"sqlite:///{tmp_path}/new.sqlite"
    new = Database(url, eng.settings)
    await migrate.up(new.driver)
    again = await eng.start("runs")
    await eng.node(roles="worker,wakeup,archive", database_url=url)
    assert (await eng.final(again)).status == "success"
    known = await new.list_definitions()
    assert known.pipelines["runs"] == definition.version.encode() and "main" in known.groups
    transactions = Transactions(eng.store, eng.definitions, Archive(eng.store, new))
    with pytest.raises(Conflict, match=r"it left memory at version .*, but the archive holds nothing"):
        await transactions.set_switch(waits, "go", True)
    await transactions.end_parked(waits, "failed", "lost with the database")
    await new.close()
