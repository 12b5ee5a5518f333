"""Races around what has left memory: both sides are held at the critical point, and then let go together."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from worker.support import Engine, Held, soon, until

from datp.archive.archiver import Archiver
from datp.archive.database import Database
from datp.archive.reconciler import reconcile
from datp.archive.restore import LOST, Restorer, Wanted
from datp.errors import Conflict
from datp.hotstore.store import Found, Result
from datp.model.ids import TransactionId, partition_of

three_databases = pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
one_database = pytest.mark.parametrize("kind", ["sqlite"])


class Meeting:
    """A method at which so many callers wait for one another, when they have done what it does."""

    def __init__(self, thing: Any, name: str, callers: int) -> None:
        self._call: Callable[..., Awaitable[Any]] = getattr(thing, name)
        self._all_here = asyncio.Barrier(callers)
        self._left = callers
        setattr(thing, name, self)

    async def __call__(self, *given: Any) -> Any:
        came = await self._call(*given)
        if self._left > 0:
            self._left -= 1
            await soon(self._all_here.wait(), "everybody is here")
        return came


class Stop:
    """A method whose first caller is held when it has done what it does, until it is let go."""

    def __init__(self, thing: Any, name: str) -> None:
        self._call: Callable[..., Awaitable[Any]] = getattr(thing, name)
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        setattr(thing, name, self)

    async def __call__(self, *given: Any) -> Any:
        came = await self._call(*given)
        if not self.reached.is_set():
            self.reached.set()
            await soon(self.go_on.wait(), "it may go on")
        return came


def sql(eng: Engine) -> Database:
    assert eng.archive is not None
    return eng.archive.database


async def known(eng: Engine, tx_id: str) -> Found | Result:
    async with eng.store.turn() as turn:
        reply = turn.get_state([tx_id])
    return reply.value[0]


async def evicted(eng: Engine, tx_id: str) -> None:
    async def gone() -> bool:
        found = await known(eng, tx_id)
        return isinstance(found, Result) and found.code == "EVICTED"

    await until(gone, f"{tx_id} left memory")


async def waiter(eng: Engine, *, timeout: str = "7d") -> tuple[TransactionId, Held]:
    """A transaction that waits for `go` and has left memory, and the step after it; nobody wakes it by time."""
    held = eng.held()
    await eng.pipeline("waits", {"step": "util/wait", "with": {"switch": "go", "timeout": timeout}}, "test/held")
    await eng.node(roles="worker,archive")
    tx_id = await eng.start("waits")
    await evicted(eng, tx_id)
    return tx_id, held


async def wake_due(eng: Engine, tx_id: str) -> list[Result]:
    """What a waker does with it, once its time has come."""

    async def claimed() -> bool:
        async with eng.store.turn() as turn:
            reply = turn.wake_due(partition_of(TransactionId(tx_id)), 10)
        return [(one.tx_id, one.what) for one in reply.value.happened] == [(tx_id, "EVICTED")]

    await until(claimed, "it is due")
    return await Restorer(eng.store, sql(eng)).restore([Wanted(tx_id, "due")])


async def went_on_once(eng: Engine, tx_id: TransactionId, held: Held) -> None:
    """The step after the waiting ran once, and the transaction ends."""
    await held.began()
    held.let_go()
    assert (await eng.final(tx_id)).status == "success"
    assert len(held.runs) == 1


# ── switches, and waking ─────────────────────────────────────────────────────────────────────────────────────────


@three_databases
@pytest.mark.parametrize("second", [("go", "second"), ("other", 2)])
async def test_two_callers_and_a_waker_meet_at_an_evicted_waiter(second: tuple[str, Any], eng: Engine) -> None:
    """All three have read it from SQL before any of them puts it back; a worker looks only afterwards."""
    tx_id, held = await waiter(eng, timeout="50ms")
    await eng.nodes[0].stop()
    Meeting(sql(eng), "read_states", 3)
    *said, _ = await asyncio.gather(
        eng.transactions.set_switch(tx_id, "go", "first"),
        eng.transactions.set_switch(tx_id, *second),
        wake_due(eng, tx_id),
    )
    assert set(said) <= {"OK", "WOKEN"}
    switches = (await eng.transactions.show(tx_id)).switches
    assert switches in ([{"go": "first"}, {"go": "second"}] if second[0] == "go" else [{"go": "first", "other": 2}])
    await eng.node(roles="worker")
    await went_on_once(eng, tx_id, held)


@one_database
async def test_the_later_of_two_values_stands(eng: Engine) -> None:
    """The second caller comes while the first has it half restored: its value is set after, and not lost."""
    tx_id, held = await waiter(eng)
    stop = Stop(sql(eng), "read_states")
    first = asyncio.create_task(eng.transactions.set_switch(tx_id, "go", "first"))
    await soon(stop.reached.wait(), "the first has read it")
    assert await eng.transactions.set_switch(tx_id, "go", "second") == "WOKEN"
    await held.began()
    stop.go_on.set()
    assert await first == "OK", "it runs by now, and has the first one's value after the second's"
    assert (await eng.transactions.show(tx_id)).switches == {"go": "first"}
    await went_on_once(eng, tx_id, held)


@one_database
async def test_a_poll_that_is_held_does_not_hold_the_wake(eng: Engine) -> None:
    """The poll was told that it is evicted, and reads SQL; meanwhile it is woken, and goes on."""
    tx_id, held = await waiter(eng)
    assert eng.archive is not None
    read = eng.archive.database.read_states
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(tx_ids: list[str]) -> Any:
        reached.set()
        await soon(go_on.wait(), "it may go on")
        return await read(tx_ids)

    eng.archive.database.read_states = slow  # type: ignore[method-assign,assignment]
    polls = [asyncio.create_task(eng.transactions.reply(tx_id)) for _ in range(20)]
    await soon(reached.wait(), "the polls have begun")
    eng.archive.database.read_states = read  # type: ignore[method-assign]
    assert await eng.transactions.set_switch(tx_id, "go", True) == "WOKEN"
    await held.began()
    go_on.set()
    assert {reply.status for reply in await asyncio.gather(*polls)} == {"waiting"}, "as it was when they asked"
    assert (await eng.transactions.reply(tx_id)).status == "running"
    await went_on_once(eng, tx_id, held)


@one_database
async def test_a_waker_that_comes_back_after_its_claim_ran_out_wakes_nothing_twice(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("sleeps", {"step": "util/delay", "with": {"duration": "100ms"}}, "test/held")
    await eng.node(roles="worker,archive")
    tx_id = await eng.start("sleeps")
    await evicted(eng, tx_id)
    stop = Stop(sql(eng), "read_states")
    slow = asyncio.create_task(wake_due(eng, tx_id))
    await soon(stop.reached.wait(), "the first has claimed and read it")
    [second] = await wake_due(eng, tx_id)
    assert second.code == "WOKEN", "its claim had run out"
    stop.go_on.set()
    [first] = await slow
    assert first.code in ("PRESENT", "UNKNOWN")
    await went_on_once(eng, tx_id, held)


@one_database
async def test_a_switch_that_comes_when_all_is_over_is_refused(eng: Engine) -> None:
    """Between being told that it is evicted and bringing it back, it was woken, ended, was archived and forgotten."""
    tx_id, held = await waiter(eng)
    held.let_go()
    stop = Stop(sql(eng), "read_states")
    late = asyncio.create_task(eng.transactions.set_switch(tx_id, "late", 1))
    await soon(stop.reached.wait(), "it has been read")
    await eng.transactions.set_switch(tx_id, "go", True)
    await eng.final(tx_id)

    async def archived() -> bool:
        state = (await sql(eng).read_states([tx_id]))[tx_id]
        return state.is_final

    await until(archived, "SQL has its end")
    async with Redis.from_url(eng.store.url) as redis:
        await redis.delete(f"stateH:{eng.store.tags[partition_of(tx_id)]}:{tx_id}")
    stop.go_on.set()
    with pytest.raises(Conflict, match="it has ended: success"):
        await late
    assert (await eng.transactions.reply(tx_id)).status == "success"


# ── archiving ────────────────────────────────────────────────────────────────────────────────────────────────────


@one_database
@pytest.mark.parametrize("touched", ["switch", "cancel", "wake"])
async def test_what_is_touched_between_its_archiving_and_the_acknowledgement_is_not_evicted(
    touched: str, eng: Engine
) -> None:
    held = eng.held()
    await eng.pipeline("waits", {"step": "util/wait", "with": {"switch": "go", "timeout": "7d"}}, "test/held")
    await eng.node(roles="worker")
    tx_id = await eng.start("waits")
    await eng.phase(tx_id, "waiting")
    archiver = Archiver(eng.store, sql(eng), eng.settings, "slow", eng.nodes[0].events)
    while not archiver._acknowledged:
        await archiver.turn()
        await archiver._finish_writing()
    assert tx_id in await sql(eng).read_states([tx_id]), "SQL has it as it waited; nothing is acknowledged yet"
    if touched == "switch":
        assert await eng.transactions.set_switch(tx_id, "go", True) == "WOKEN"
        await held.began()
    elif touched == "wake":
        await eng.transactions.wake(tx_id)
    else:
        await eng.transactions.cancel(tx_id)
    await archiver.turn()
    assert isinstance(await known(eng, tx_id), Found), "the acknowledgement named an older version"
    await archiver.stop()
    await eng.node(roles="archive,wakeup")
    if touched == "switch":
        await went_on_once(eng, tx_id, held)
    elif touched == "cancel":
        assert (await eng.final(tx_id)).status == "cancelled"
    else:
        await evicted(eng, tx_id)
        await eng.transactions.set_switch(tx_id, "go", True)
        await went_on_once(eng, tx_id, held)


# ── the store went back, or SQL did ──────────────────────────────────────────────────────────────────────────────


async def name_version(eng: Engine, tx_id: TransactionId, by: int) -> int:
    """evictedH names another version than SQL has."""
    state = (await sql(eng).read_states([tx_id]))[tx_id]
    async with Redis.from_url(eng.store.url) as redis:
        await redis.hset(f"evictedH:{eng.store.tags[partition_of(tx_id)]}", tx_id, str(state.version + by))
    return state.version


@three_databases
async def test_where_sql_is_ahead_of_what_was_evicted_its_word_counts(eng: Engine) -> None:
    """The store went back to before the last eviction; two callers find out at the same moment."""
    tx_id, held = await waiter(eng)
    await name_version(eng, tx_id, -1)
    Meeting(sql(eng), "read_states", 2)
    said = await asyncio.gather(
        eng.transactions.set_switch(tx_id, "go", True), eng.transactions.set_switch(tx_id, "other", 7)
    )
    assert sorted(said) == ["OK", "WOKEN"]
    assert (await eng.transactions.show(tx_id)).switches == {"go": True, "other": 7}
    await went_on_once(eng, tx_id, held)


@one_database
async def test_where_sql_has_lost_it_an_operator_is_told(eng: Engine) -> None:
    tx_id, _ = await waiter(eng)
    version = await name_version(eng, tx_id, 5)
    reason = LOST.format(evicted=version + 5, held=f"version {version}")
    with pytest.raises(Conflict, match=reason):
        await eng.transactions.set_switch(tx_id, "go", True)
    async with eng.store.turn() as turn:
        reply = turn.get_state([tx_id], whole=True)
    found = reply.value[0]
    assert isinstance(found, Found) and reason.encode() in found.parked


@three_databases
async def test_of_two_reconcilers_one_puts_back_what_the_store_has_lost(eng: Engine) -> None:
    """Both have read it from SQL, and know that the store has not got it."""
    tx_id, held = await waiter(eng)
    async with Redis.from_url(eng.store.url) as redis:
        tag = eng.store.tags[partition_of(tx_id)]
        await redis.hdel(f"evictedH:{tag}", tx_id)
        await redis.zrem(f"sleepingZ:{tag}", tx_id)
    Meeting(sql(eng), "read_states", 2)
    put_back = await asyncio.gather(reconcile(eng.store, sql(eng), 10), reconcile(eng.store, sql(eng), 10))
    assert sorted(put_back) == [0, 1]
    assert await eng.transactions.set_switch(tx_id, "go", True) == "WOKEN"
    await went_on_once(eng, tx_id, held)
