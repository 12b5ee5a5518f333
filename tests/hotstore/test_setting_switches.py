"""Switches: typed, with any characters, and no change of one is ever lost on whoever waits for it."""

import pytest
from driver import LATER_MS, Driver

from datp.model.switches import decode_switch, encode_switch
from datp.settings import Settings

NAMES = ("go", "a.b", "a b", "x,y", "a=b", ":order", "päivä 🌤", "{0}", "%s")
VALUES = (True, False, 0, -1.5, 2**53 - 1, "", "x y,z", "a b", "1", "true", 'say "hi"', "new\nline", "é🌤")


async def _switches(hot: Driver, tx_id: str) -> dict[str, str]:
    run = await hot.take_one(tx_id)
    return run.switches


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_a_value_comes_back_as_it_was_set(value: bool | int | float | str, hot: Driver) -> None:
    [tx_id] = await hot.queued()
    assert (await hot.set_switch(tx_id, "s", encode_switch("s", value, Settings()))).code == "OK"
    found = decode_switch((await _switches(hot, tx_id))["s"]).value
    assert (found, type(found)) == (value, type(value))


async def test_names_may_have_any_characters(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    for number, name in enumerate(NAMES):
        assert (await hot.set_switch(tx_id, name, str(number))).code == "OK"
    found = await _switches(hot, tx_id)
    assert {name: decode_switch(value).value for name, value in found.items()} == {
        name: number for number, name in enumerate(NAMES)
    }


@pytest.mark.parametrize("name", NAMES)
async def test_a_waiter_is_woken_by_a_switch_of_any_name(name: str, hot: Driver) -> None:
    run = await hot.running()
    await hot.wait(run, name)
    assert (await hot.set_switch(run.tx_id, "another")).code == "OK"
    assert (await hot.set_switch(run.tx_id, name)).code == "WOKEN"
    assert (await hot.take_one(run.tx_id)).woken == "switch"


async def test_null_deletes_a_switch(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    await hot.set_switch(tx_id, "s", "1")
    assert (await hot.set_switch(tx_id, "s", "")).code == "OK"
    assert (await hot.set_switch(tx_id, "s", "")).code == "SAME"
    assert await _switches(hot, tx_id) == {}


async def test_the_same_value_changes_nothing_and_wakes_nobody(hot: Driver) -> None:
    run = await hot.running()
    set_at = (await hot.set_switch(run.tx_id, "go", "1")).text
    await hot.wait(run, "go", seen=set_at)
    before = hot.field(run.tx_id, "version")
    assert (await hot.set_switch(run.tx_id, "go", "1")).code == "SAME"
    assert (hot.phase(run.tx_id), hot.field(run.tx_id, "version")) == ("waiting", before)


async def test_a_switch_that_is_set_between_the_steps_look_and_its_wait_is_not_lost(hot: Driver) -> None:
    run = await hot.running()  # sees no switch
    await hot.set_switch(run.tx_id, "go")
    assert (await hot.wait(run, "go", seen="")).code == "WOKEN"
    again = await hot.take_one(run.tx_id)
    assert (again.woken, decode_switch(again.switches["go"]).value) == ("switch", True)


async def test_a_switch_that_is_changed_or_deleted_between_look_and_wait_is_not_lost(hot: Driver) -> None:
    for change in ("2", ""):
        [tx_id] = await hot.queued()
        await hot.set_switch(tx_id, "go", "1")
        run = await hot.take_one(tx_id)
        await hot.set_switch(tx_id, "go", change)
        assert (await hot.wait(run, "go", seen=decode_switch(run.switches["go"]).version)).code == "WOKEN"
        await hot.take_one(tx_id)


async def test_a_switch_that_went_and_came_back_with_the_same_value_differs_from_what_was_seen(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    await hot.set_switch(tx_id, "go", "1")
    run = await hot.take_one(tx_id)
    await hot.set_switch(tx_id, "go", "")
    await hot.set_switch(tx_id, "go", "1")
    assert (await hot.wait(run, "go", seen=decode_switch(run.switches["go"]).version)).code == "WOKEN"


async def test_a_wait_for_what_was_seen_already_goes_to_sleep(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    await hot.set_switch(tx_id, "go", "1")
    run = await hot.take_one(tx_id)
    assert (await hot.wait(run, "go", seen=decode_switch(run.switches["go"]).version)).code == "OK"
    assert hot.phase(tx_id) == "waiting"


async def test_a_switch_of_an_evicted_transaction_is_set_with_its_restoring(hot: Driver) -> None:
    archived = await hot.evicted(wake_in_ms=-1, switch="go")
    assert (await hot.set_switch(archived.tx_id, "go")).code == "EVICTED"
    assert not hot.raw.exists(hot.key("state", tx_id=archived.tx_id), hot.key("switches", tx_id=archived.tx_id))
    assert (await hot.restore(archived, "switch", "go", "true")).code == "WOKEN"
    assert decode_switch((await _switches(hot, archived.tx_id))["go"]).value is True


async def test_switches_survive_eviction(hot: Driver) -> None:
    run = await hot.running()
    for name in NAMES:
        await hot.set_switch(run.tx_id, name, '"v"')
    await hot.sleep(run, LATER_MS)
    archived = await hot.evict(run.tx_id)
    await hot.restore(archived, "wake")
    assert set(await _switches(hot, run.tx_id)) == set(NAMES)


async def test_an_unknown_transaction_gets_no_ghost(hot: Driver) -> None:
    tx_id = hot.new_id()
    await hot.set_switch(tx_id)
    await hot.get(tx_id, replied_to="acme")
    await hot.wake(tx_id)
    await hot.cancel(tx_id)
    assert [name for name in hot.raw.scan_iter() if tx_id in name] == []


async def test_switches_are_gone_when_it_ends(hot: Driver) -> None:
    run = await hot.running()
    await hot.set_switch(run.tx_id)
    await hot.complete(run)
    assert not hot.raw.exists(hot.key("switches", tx_id=run.tx_id))


async def test_a_deleted_switch_makes_room_for_another(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    for number in range(hot.store.settings.switches_max):
        await hot.set_switch(tx_id, f"s{number}", "1")
    assert (await hot.set_switch(tx_id, "s0", "2")).code == "OK"
    assert (await hot.set_switch(tx_id, "new", "1")).code == "TOO_MANY_SWITCHES"
    await hot.set_switch(tx_id, "s0", "")
    assert (await hot.set_switch(tx_id, "new", "1")).code == "OK"


async def test_setting_a_switch_is_not_seen_as_a_change_by_clients(hot: Driver) -> None:
    [tx_id] = await hot.queued()
    before = hot.field(tx_id, "sequence")
    await hot.set_switch(tx_id)
    assert hot.field(tx_id, "sequence") == before
