"""Switches from outside: typed, at once, and never lost between a step's reading and its waiting."""

import asyncio
from typing import Any

import pytest
from worker.support import Engine, output_of, soon, until

from datp.errors import BadSwitch, Conflict, NotFound
from datp.hotstore.connection import RawCall
from datp.model.ids import TransactionId
from datp.steps import Context, WaitForSwitch


async def waiting(eng: Engine, switch: str = "go", timeout_ms: int | None = None) -> TransactionId:
    """A transaction that waits for a switch, and whose output is what it then read, and what woke it."""

    async def waits(context: Context) -> Any:
        read = context.switch(switch)
        return WaitForSwitch(switch, timeout_ms) if read is None and not context.woken_by else [read, context.woken_by]

    eng.step("test/waits", waits)
    await eng.pipeline("waits", "test/waits")
    tx_id = await eng.start("waits")
    if not eng.nodes:
        await eng.node()
    await eng.phase(tx_id, "waiting")
    return tx_id


@pytest.mark.parametrize("value", [True, False, 0, 3, -1.5, "", "text, with a comma", "x" * 32, "é" * 32])
async def test_a_value_comes_as_it_was_given(eng: Engine, value: Any) -> None:
    tx_id = await waiting(eng)
    assert await eng.transactions.set_switch(tx_id, "go", value) == "WOKEN"
    read, woken_by = output_of(await eng.final(tx_id))
    assert (type(read), read, woken_by) == (type(value), value, "switch")


@pytest.mark.parametrize("name", ["a.b", "a b", "a,b", "a=b", '"quoted"', "ü", "x" * 64])
async def test_a_name_may_have_any_characters(eng: Engine, name: str) -> None:
    tx_id = await waiting(eng, name)
    await eng.transactions.set_switch(tx_id, name, 1)
    assert output_of(await eng.final(tx_id)) == [1, "switch"]


async def test_what_can_not_be_a_switch_is_refused_and_changes_nothing(eng: Engine) -> None:
    tx_id = await waiting(eng)
    before = await eng.transactions.show(tx_id)
    for name, value, says in (
        ("go", "x" * 33, "Switch exceeds maximum length (go: "),
        ("go", [1], "Switch can only be boolean, number, or string (< 32 chars)"),
        ("go", {}, "Switch can only be boolean, number, or string (< 32 chars)"),
        ("", 1, "A switch's name has 1 to 64 characters"),
        ("x" * 65, 1, "A switch's name has 1 to 64 characters"),
        ("go", float("inf"), "A switch's number must be finite"),
    ):
        with pytest.raises(BadSwitch) as refused:
            await eng.transactions.set_switch(tx_id, name, value)
        assert str(refused.value).startswith(says)
    assert await eng.transactions.show(tx_id) == before


async def test_another_switch_wakes_nobody(eng: Engine) -> None:
    tx_id = await waiting(eng)
    assert await eng.transactions.set_switch(tx_id, "other", 1) == "OK"
    assert (await eng.transactions.show(tx_id)).phase == "waiting"
    await eng.transactions.set_switch(tx_id, "go", 1)
    await eng.final(tx_id)


async def test_the_same_value_again_changes_nothing(eng: Engine) -> None:
    tx_id = await waiting(eng)
    await eng.transactions.set_switch(tx_id, "other", "x")
    before = await eng.transactions.show(tx_id)
    assert await eng.transactions.set_switch(tx_id, "other", "x") == "SAME"
    assert await eng.transactions.show(tx_id) == before
    assert await eng.transactions.set_switch(tx_id, "other", None) == "OK", "None deletes it"
    assert (await eng.transactions.show(tx_id)).switches == {}


async def test_switches_end_with_their_transaction(eng: Engine) -> None:
    tx_id = await waiting(eng)
    await eng.transactions.set_switch(tx_id, "go", 1)
    await eng.final(tx_id)
    with pytest.raises(Conflict, match="it has ended: success"):
        await eng.transactions.set_switch(tx_id, "go", 2)
    with pytest.raises(NotFound):
        await eng.transactions.set_switch(TransactionId("tx-00-1hf7yat00g0123456789abc"), "go", 2)


async def test_there_is_a_limit_to_them(eng: Engine) -> None:
    tx_id = await waiting(eng)
    for number in range(50):
        await eng.transactions.set_switch(tx_id, f"s{number}", number)
    with pytest.raises(Conflict, match=r"switches_max \(50\)"):
        await eng.transactions.set_switch(tx_id, "one more", 1)
    await eng.transactions.set_switch(tx_id, "s0", None)
    await eng.transactions.set_switch(tx_id, "go", 1)
    await eng.final(tx_id)


async def test_one_that_waits_is_woken_at_once(eng: Engine) -> None:
    tx_id = await waiting(eng)
    began = asyncio.get_running_loop().time()
    await eng.transactions.set_switch(tx_id, "go", 1)
    await eng.final(tx_id)
    assert asyncio.get_running_loop().time() - began < eng.settings.idle_look_ms / 1000, "by the bell"


async def test_a_switch_may_be_set_before_anybody_waits(eng: Engine) -> None:
    async def waits(context: Context) -> Any:
        return context.switch("go") or WaitForSwitch("go")

    eng.step("test/waits", waits)
    await eng.pipeline("waits", "test/waits")
    tx_id = await eng.start("waits")
    assert await eng.transactions.set_switch(tx_id, "go", 7) == "OK"
    await eng.node()
    assert output_of(await eng.final(tx_id)) == 7


@pytest.mark.parametrize("change", ["set", "set again", "delete", "delete and set"])
async def test_a_switch_set_between_reading_and_waiting_is_not_lost(eng: Engine, change: str) -> None:
    """The step has read, and is about to wait: what changes now must bring it back."""
    has_read, may_wait = asyncio.Event(), asyncio.Event()
    seen: list[Any] = []

    async def waits(context: Context) -> Any:
        seen.append(context.switch("go"))
        has_read.set()
        await may_wait.wait()
        return WaitForSwitch("go") if len(seen) == 1 else context.woken_by

    eng.step("test/waits", waits)
    await eng.pipeline("waits", "test/waits")
    tx_id = await eng.start("waits")
    if change != "set":
        await eng.transactions.set_switch(tx_id, "go", 1)
    await eng.node()
    await soon(has_read.wait(), "the step has read the switch")
    if change.startswith("delete"):
        await eng.transactions.set_switch(tx_id, "go", None)
    if change.endswith(("set", "again")):
        await eng.transactions.set_switch(tx_id, "go", 1 if change == "delete and set" else 2)
    may_wait.set()
    assert output_of(await eng.final(tx_id, 5)) == "switch"
    assert len(seen) == 2


async def test_a_switch_set_while_the_wait_is_on_its_way_is_not_lost(eng: Engine) -> None:
    """The outcome has left the step, and has not reached the store."""
    on_its_way, may_go = asyncio.Event(), asyncio.Event()

    async def waits(context: Context) -> Any:
        return context.switch("go") or WaitForSwitch("go")

    eng.step("test/waits", waits)
    await eng.pipeline("waits", "test/waits")
    node = await eng.node()
    execute = node.store.connection.execute

    async def held(calls: list[RawCall]) -> None:
        if any(call.script.contract.name == "sleep" for call in calls):
            on_its_way.set()
            await may_go.wait()
        await execute(calls)

    node.store.connection.execute = held  # type: ignore[method-assign, assignment]
    tx_id = await eng.start("waits")
    await soon(on_its_way.wait(), "the wait is on its way")
    assert await eng.transactions.set_switch(tx_id, "go", "now") == "OK"
    may_go.set()
    assert output_of(await eng.final(tx_id, 5)) == "now"


async def test_a_wait_may_time_out(eng: Engine) -> None:
    tx_id = await waiting(eng, timeout_ms=30)
    assert output_of(await eng.final(tx_id)) == [None, "time"]


async def test_an_operator_may_wake(eng: Engine) -> None:
    tx_id = await waiting(eng)
    assert (await eng.transactions.wake(tx_id)).code == "WOKEN"
    assert output_of(await eng.final(tx_id)) == [None, "operator"]
    with pytest.raises(Conflict, match="it is complete"):
        await eng.transactions.wake(tx_id)


async def test_a_step_may_wait_for_one_after_the_other(eng: Engine) -> None:
    async def waits(context: Context) -> Any:
        for name in ("a", "b", "c"):
            if context.switch(name) is None:
                return WaitForSwitch(name)
        return context.attempt

    eng.step("test/waits", waits)
    await eng.pipeline("waits", "test/waits")
    await eng.node()
    tx_id = await eng.start("waits")
    for name in ("a", "b", "c"):

        async def is_awaited(name: str = name) -> bool:
            return (await eng.transactions.show(tx_id)).wake_switch == name

        await until(is_awaited, f"it waits for {name}")
        await eng.transactions.set_switch(tx_id, name, name)
    assert output_of(await eng.final(tx_id)) == 4


async def test_a_wait_for_a_switch_that_this_run_has_set_looks_again(eng: Engine) -> None:
    runs: list[Any] = []

    async def waits(context: Context) -> Any:
        runs.append(context.switch("own"))
        if len(runs) == 1:
            context.set_switch("own", "first")
        return WaitForSwitch("own") if len(runs) < 3 else context.switch("own")

    eng.step("test/waits", waits)
    await eng.pipeline("waits", "test/waits")
    await eng.node()
    tx_id = await eng.start("waits")
    await until(lambda: _ran(runs, 2), "it looked again")
    await eng.phase(tx_id, "waiting")
    await eng.transactions.set_switch(tx_id, "own", "second")
    assert output_of(await eng.final(tx_id)) == "second"
    assert runs == [None, "first", "second"]


async def _ran(runs: list[Any], times: int) -> bool:
    return len(runs) >= times


async def test_the_shipped_wait_gives_up_in_time(eng: Engine) -> None:
    definition = {"switch": "approved", "timeout": "30ms"}
    await eng.pipeline("asks", {"step": "util/wait", "with": definition})
    await eng.pipeline("asks-once", {"step": "util/wait", "with": {**definition, "onTimeout": "aborted"}})
    await eng.node()
    reply = await eng.run("asks")
    assert (reply.status, reply.note) == ("failed", "the switch approved was not set in time")
    assert (await eng.run("asks-once")).status == "aborted"


async def test_the_shipped_wait_goes_on_when_the_value_is_true(eng: Engine) -> None:
    await eng.pipeline("asks", {"step": "util/wait", "with": {"switch": "approved"}}, "util/echo")
    await eng.node()
    tx_id = await eng.start("asks", {"kept": 1})
    await eng.phase(tx_id, "waiting")
    await eng.transactions.set_switch(tx_id, "approved", False)
    shown = await eng.phase(tx_id, "waiting")
    assert shown.switches == {"approved": False}
    await eng.transactions.set_switch(tx_id, "approved", True)
    assert output_of(await eng.final(tx_id)) == {"kept": 1}
