"""Starts: validated before anything is written, once for each id, and once for each externalId."""

from typing import Any

import pytest
from driver import Driver

from datp.hotstore.store import Start


def _everything(hot: Driver) -> set[Any]:
    """All keys but those that a store has from its beginning."""
    return {name for name in hot.raw.scan_iter() if not name.startswith("metaH:")}


@pytest.mark.parametrize(
    "field", ["owner", "type", "group", "pipeline_version", "webhook", "durability", "deadline_in_ms", "request_hash"]
)
async def test_a_start_that_fails_leaves_no_trace_and_no_external_id(field: str, hot: Driver) -> None:
    broken: dict[str, Any] = dict.fromkeys(Start.__struct_fields__, "x")
    broken |= {"tx_id": hot.new_id(), "external_id": "e", "deadline_in_ms": 1000} | {field: None}
    async with hot.store.turn() as turn:
        reply = turn.enqueue([Start(**broken)], [b"{}"])
    assert reply.value[0].code == "RAISED"
    assert _everything(hot) == set()
    assert (await hot.start(external_id="e", owner="x", request_hash="corrected")).code == "OK"


async def test_a_refused_start_leaves_no_trace(hot: Driver) -> None:
    await hot.start(external_id="e", request_hash="h1")
    before = _everything(hot)
    assert (await hot.start(external_id="e", request_hash="h2")).code == "EXTERNAL_ID_TAKEN"
    assert _everything(hot) == before


async def test_the_same_start_again_is_already_there_with_the_same_version(hot: Driver) -> None:
    tx_id = hot.new_id()
    first = await hot.start(tx_id, external_id="e")
    hot.clock.advance(10)
    again = await hot.start(tx_id, external_id="e")
    assert (again.code, again.text) == ("ALREADY", first.text)
    assert hot.raw.llen(hot.key("queue", queue="In", group="main")) == 1


async def test_a_start_is_already_there_while_it_is_evicted(hot: Driver) -> None:
    archived = await hot.evicted(external_id="e")
    assert (await hot.start(archived.tx_id, external_id="e")).code == "ALREADY"


async def test_of_two_starts_in_one_call_the_first_takes_the_external_id(hot: Driver) -> None:
    ids = [hot.new_id(), hot.new_id()]
    items = [Start(tx_id, "acme", "e", "h1", "order", "1", "main", 0, "", "hot") for tx_id in ids]
    async with hot.store.turn() as turn:
        reply = turn.enqueue(items, [b"{}"] * 2)
    assert [(result.code, result.text) for result in reply.value][1] == ("DUPLICATE", ids[0])
    assert reply.value[0].code == "OK"


async def test_owners_have_their_own_external_ids(hot: Driver) -> None:
    assert (await hot.start(external_id="b:c d", owner="a")).code == "OK"
    assert (await hot.start(external_id="b:c d", owner="b")).code == "OK"
    assert (await hot.find("b:c d", owner="a")).text != (await hot.find("b:c d", owner="b")).text


async def test_an_external_id_has_no_ttl_while_its_transaction_lives_and_then_its_period(hot: Driver) -> None:
    run = await hot.running(external_id="e")
    name = hot.key("external_id", owner="acme", external_id="e")
    assert hot.raw.pttl(name) == -1
    await hot.complete(run)
    period = hot.store.settings.external_id_period_ms
    assert period - 10_000 < hot.raw.pttl(name) <= period
    assert (await hot.start(external_id="e")).code == "DUPLICATE"


async def test_an_external_id_keeps_its_transaction_while_it_is_evicted(hot: Driver) -> None:
    archived = await hot.evicted(external_id="e")
    assert (await hot.find("e")).text == archived.tx_id
    assert hot.raw.pttl(hot.key("external_id", owner="acme", external_id="e")) == -1


async def test_a_start_rings_the_bell_of_its_group_once(hot: Driver) -> None:
    await hot.queued(3)
    assert hot.raw.llen(hot.key("bell", group="main")) == 1
    assert await hot.store.hear_bell(["main"], 1) == hot.key("bell", group="main")


async def test_the_deadline_counts_from_the_start(hot: Driver) -> None:
    [tx_id] = await hot.queued(deadline_in_ms=5_000)
    assert hot.score("deadlines", tx_id) == hot.clock.now_ms() + 5_000
