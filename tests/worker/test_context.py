"""The context: who a step is, and how it speaks to the store before it ends."""

import asyncio
from typing import Any

import msgspec
import pytest
from worker.support import Engine, Held, output_of, soon, until

from datp.errors import BadSwitch, TooLarge
from datp.hotstore.connection import RawCall
from datp.steps import Context, Failed, RetryLater


async def held_one(eng: Engine, **step: Any) -> Held:
    """A pipeline `one` of a step that this test holds."""
    held = eng.held()
    await eng.pipeline("one", {"step": "test/held", **step}, "util/echo")
    return held


# ── who it is ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_step_knows_who_and_where_it_is(eng: Engine) -> None:
    held = await held_one(eng)
    node = await eng.node()
    tx_id = await eng.start("one", external_id="order 7", metadata={"lang": "FIL", "shop": 3}, deadline="1h")
    context = await held.began()
    assert context.tx_id == tx_id
    assert context.idempotency_key == f"s-{tx_id[3:]}.1"
    assert (context.step_name, context.attempt, context.woken_by) == ("s1", 1, "")
    assert (context.owner, context.external_id, context.transaction_type) == ("acme", "order 7", "one")
    assert (context.node_group, context.node_id) == ("main", node.node_id)
    assert (context.language, context.metadata) == ("FIL", {"lang": "FIL", "shop": 3})
    assert 3_590_000 < context.deadline_ms - eng.store.clock.now_ms() < 3_601_000
    assert not context.cancelled
    held.let_go()
    await eng.final(tx_id)


async def test_a_step_without_a_deadline_or_a_language_has_neither(eng: Engine) -> None:
    held = await held_one(eng)
    await eng.node()
    tx_id = await eng.start("one", metadata={"language": "FR"})
    context = await held.began()
    assert (context.deadline_ms, context.language, context.external_id) == (0, "EN", "")
    held.let_go()
    await eng.final(tx_id)


async def test_keys_differ_by_step_and_transaction_and_not_by_run(eng: Engine) -> None:
    keys: list[str] = []

    async def twice(context: Context) -> Any:
        keys.append(context.idempotency_key)
        return None if context.woken_by else RetryLater(1)

    eng.step("test/twice", twice)
    await eng.pipeline("child", "test/twice")
    await eng.pipeline("two", "test/twice", {"pipeline": "child"})
    await eng.node()
    one, other = await eng.start("two"), await eng.start("two")
    await eng.finals([one, other])
    assert sorted(keys) == sorted(2 * [f"s-{tx_id[3:]}.{path}" for tx_id in (one, other) for path in ("1", "2.1")])


# ── after a crash ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_after_a_crash_a_step_is_run_again_with_the_same_key(eng: Engine) -> None:
    held = await held_one(eng)
    dying = await eng.node()
    tx_id = await eng.start("one")
    first = await held.began()
    await eng.crash(dying)
    await eng.node()
    second = await held.began(2)
    assert second.idempotency_key == first.idempotency_key
    assert second.attempt == 2
    assert second.node_id != first.node_id
    held.let_go()
    assert (await eng.final(tx_id)).status == "success"


async def test_a_rerun_finds_what_the_last_checkpoint_kept(eng: Engine) -> None:
    held = await held_one(eng)
    dying = await eng.node()
    tx_id = await eng.start("one")
    first = await held.began()
    assert first.saved is None
    await first.checkpoint({"done": 1})
    await first.checkpoint({"done": 2})
    assert first.saved == {"done": 2}
    await eng.crash(dying)
    await eng.node()
    second = await held.began(2)
    assert second.saved == {"done": 2}
    assert second.attempt == 2
    held.let_go()
    assert (await eng.final(tx_id)).status == "success"


async def test_a_steps_checkpoint_is_not_another_steps(eng: Engine) -> None:
    saved: list[Any] = []

    async def keeps(context: Context) -> None:
        saved.append(context.saved)
        await context.checkpoint(context.step_name)

    eng.step("test/keeps", keeps)
    await eng.pipeline("two", "test/keeps", "test/keeps")
    await eng.node()
    assert (await eng.run("two")).status == "success"
    assert saved == [None, None]


async def test_a_checkpoint_before_a_step_spares_those_before_it(eng: Engine) -> None:
    ran: list[str] = []
    held = eng.held()

    async def first(context: Context) -> str:
        ran.append(context.step_name)
        return "from the first"

    eng.step("test/first", first)
    await eng.pipeline("two", "test/first", {"step": "test/held", "checkpoint": True})
    dying = await eng.node()
    tx_id = await eng.start("two")
    await held.began()
    await eng.crash(dying)
    await eng.node()
    again = await held.began(2)
    assert again.attempt == 2
    held.let_go()
    assert output_of(await eng.final(tx_id)) == "from the first"
    assert ran == ["s1"]


async def test_a_thread_may_wait_for_its_checkpoint(eng: Engine) -> None:
    def keeps(context: Context) -> Any:
        context.checkpoint([1, 2]).wait(5)
        return context.saved

    eng.step("test/keeps", keeps)
    await eng.pipeline("one", "test/keeps")
    await eng.node()
    assert output_of(await eng.run("one")) == [1, 2]


async def test_waiting_in_the_event_loop_is_refused(eng: Engine) -> None:
    async def waits(context: Context) -> None:
        context.report_progress(1).wait(5)

    eng.step("test/waits", waits)
    await eng.pipeline("one", "test/waits")
    await eng.node()
    assert "would stop the event loop" in ((await eng.run("one")).note or "")


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_last_progress_report_is_seen(eng: Engine) -> None:
    held = await held_one(eng)
    await eng.node()
    tx_id = await eng.start("one")
    context = await held.began()
    for done in range(3):
        await context.report_progress({"done": done})
    assert msgspec.json.decode((await eng.transactions.reply(tx_id)).progress_report) == {"done": 2}
    held.let_go()
    reply = await eng.final(tx_id)
    assert msgspec.json.decode(reply.progress_report) == {"done": 2}, "after the end too"


async def test_an_equal_report_changes_nothing(eng: Engine) -> None:
    held = await held_one(eng)
    await eng.node()
    tx_id = await eng.start("one")
    context = await held.began()
    await context.report_progress({"a": [1, {"b": 2}], "c": None})
    before = await eng.transactions.reply(tx_id)
    await context.report_progress({"c": None, "a": [1, {"b": 2}]})
    assert await eng.transactions.reply(tx_id) == before
    await context.report_progress({"a": [1, {"b": 3}], "c": None})
    after = await eng.transactions.reply(tx_id)
    assert after.sequence > before.sequence
    held.let_go()
    assert (await eng.final(tx_id)).sequence > after.sequence


async def test_reports_that_nobody_waits_for_arrive_in_order(eng: Engine) -> None:
    """Also when the first is slow: what follows it does not overtake it on another lane."""

    async def reports(context: Context) -> None:
        for number in range(5):
            context.report_progress(number)
            context.set_switch("last", number)
            await asyncio.sleep(0.01)

    eng.step("test/reports", reports)
    await eng.pipeline("one", "test/reports")
    node = await eng.node()
    execute = node.store.connection.execute
    slow = iter((0.1, 0.0, 0.05))

    async def delayed(calls: list[RawCall]) -> None:
        if any(call.script.contract.name in ("report_progress", "set_switch") for call in calls):
            await asyncio.sleep(next(slow, 0.0))
        await execute(calls)

    node.store.connection.execute = delayed  # type: ignore[method-assign, assignment]
    tx_id = await eng.start("one")
    reply = await eng.final(tx_id)
    assert msgspec.json.decode(reply.progress_report) == 4


async def test_a_report_that_is_too_large_is_refused_in_the_step(eng: Engine) -> None:
    raised: list[str] = []

    async def talks(context: Context) -> None:
        for report in ("x" * 20_000, object(), "\ud800"):
            try:
                context.report_progress(report)
            except (TooLarge, TypeError, ValueError) as error:
                raised.append(type(error).__name__)
        try:
            context.checkpoint("x" * 300_000)
        except TooLarge as error:
            raised.append(type(error).__name__)
        raised.append(context.saved)

    eng.step("test/talks", talks)
    await eng.pipeline("one", "test/talks")
    await eng.node()
    assert (await eng.run("one")).status == "success"
    assert raised == ["TooLarge", "TypeError", "UnicodeEncodeError", "TooLarge", None]


async def test_a_step_that_gives_up_waiting_for_an_answer_harms_nobody(eng: Engine) -> None:
    """The answer comes when nobody waits for it any more; the turn that brings it carries others' outcomes too."""
    held = eng.held()
    slow = asyncio.Event()

    async def impatient(context: Context) -> str:
        try:
            async with asyncio.timeout(0.02):
                await context.report_progress("half")
        except TimeoutError:
            slow.set()
        return "done"

    eng.step("test/impatient", impatient)
    await eng.pipeline("impatient", "test/impatient")
    await eng.pipeline("one", "test/held")
    node = await eng.node()
    execute = node.store.connection.execute

    async def delayed(calls: list[RawCall]) -> None:
        if any(call.script.contract.name == "report_progress" for call in calls):
            held.let_go()
            await slow.wait()
        await execute(calls)

    node.store.connection.execute = delayed  # type: ignore[method-assign, assignment]
    other = await eng.start("one")
    await held.began()
    tx_id = await eng.start("impatient")
    assert output_of(await eng.final(tx_id, 5)) == "done"
    assert (await eng.final(other, 5)).status == "success"
    assert node.taker.in_hand == {}
    assert node.slots.free == node.slots.count


# ── switches ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_switch_that_a_step_sets_is_read_by_the_next(eng: Engine) -> None:
    seen: list[Any] = []

    async def sets(context: Context) -> None:
        context.set_switch("a b, c.d", 1.5)
        context.set_switch("gone", "x")
        context.set_switch("gone", None)
        seen.append(context.switch("a b, c.d"))

    async def reads(context: Context) -> None:
        seen.extend((context.switch("a b, c.d"), context.switch("gone")))

    eng.step("test/sets", sets)
    eng.step("test/reads", reads)
    await eng.pipeline("child", "test/reads", nodeGroup="other")
    await eng.pipeline("two", "test/sets", "test/reads", {"pipeline": "child"})
    await eng.node()
    await eng.node(node_group="other")
    assert (await eng.run("two")).status == "success"
    assert seen == [1.5, 1.5, None, 1.5, None]


async def test_a_bad_switch_is_refused_in_the_step(eng: Engine) -> None:
    async def sets(context: Context) -> list[str]:
        refused = []
        for name, value in (("", 1), ("x" * 65, 1), ("a", "x" * 33), ("a", [1]), ("a", float("nan")), ("a", 2**60)):
            try:
                context.set_switch(name, value)  # type: ignore[arg-type]
            except BadSwitch as error:
                refused.append(str(error))
        for number in range(51):
            try:
                context.set_switch(f"s{number}", number)
            except BadSwitch as error:
                refused.append(str(error))
        return refused

    eng.step("test/sets", sets)
    await eng.pipeline("one", "test/sets")
    await eng.node()
    refused = output_of(await eng.run("one"))
    assert len(refused) == 7
    assert refused[-1] == "A transaction has at most 50 switches (switches_max)"


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_cancelled_step_sees_it_and_may_tidy_up(eng: Engine) -> None:
    tidied = asyncio.Event()
    began = asyncio.Event()

    async def careful(context: Context) -> None:
        began.set()
        while not context.cancelled:
            await asyncio.sleep(0.005)
        tidied.set()

    eng.step("test/careful", careful)
    await eng.pipeline("one", "test/careful")
    await eng.node()
    tx_id = await eng.start("one")
    await soon(began.wait(), "the step began")
    await eng.transactions.cancel(tx_id, "not needed any more")
    reply = await eng.final(tx_id, 5)
    assert (reply.status, reply.note) == ("cancelled", "not needed any more")
    assert tidied.is_set()


async def test_what_a_step_said_is_stored_before_its_outcome(eng: Engine) -> None:
    async def says(context: Context) -> Any:
        context.report_progress("halfway")
        context.set_switch("said", True)
        return Failed(note="and then failed")

    eng.step("test/says", says)
    await eng.pipeline("one", "test/says")
    await eng.node()
    tx_id = await eng.start("one")
    reply = await eng.final(tx_id)
    assert msgspec.json.decode(reply.progress_report) == "halfway"


async def test_a_store_that_is_full_refuses_words_and_takes_outcomes(eng: Engine) -> None:
    """At the memory limit finishing goes on: a report that could not be stored does not hold it up."""
    held = await held_one(eng)
    await eng.node()
    tx_id = await eng.start("one")
    context = await held.began()
    client = eng.store.connection._client(None)
    await client.config_set("maxmemory", "1mb")  # type: ignore[no-untyped-call]
    try:
        with pytest.raises(Exception, match="memory limit"):
            await context.report_progress("too late")
        held.let_go()
        await eng.phase(tx_id, "complete")
    finally:
        await client.config_set("maxmemory", "0")  # type: ignore[no-untyped-call]
    assert (await eng.final(tx_id)).status == "success"


async def test_one_that_was_refused_work_for_want_of_memory_takes_it_up_again(eng: Engine) -> None:
    await eng.pipeline("one", "util/echo")
    node = await eng.node()
    tx_id = await eng.start("one")
    await eng.final(tx_id)
    client = eng.store.connection._client(None)
    node.taker.paused = True
    tx_id = await eng.start("one")
    await client.config_set("maxmemory", "1mb")  # type: ignore[no-untyped-call]
    try:
        node.taker.paused = False
        node.taker.look()

        async def is_troubled() -> bool:
            return bool(node.taker._unanswered)

        await until(is_troubled, "the taker was refused")
    finally:
        await client.config_set("maxmemory", "0")  # type: ignore[no-untyped-call]
    assert (await eng.final(tx_id)).status == "success"
