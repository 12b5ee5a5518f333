"""Nodes: what they register, which definitions and settings they go by, and what they do not know."""

import asyncio
import platform
from typing import Any

import msgspec
import pytest
from worker.support import Engine, output_of, until

from datp import __version__
from datp.errors import NotFound, StartRefused
from datp.hotstore.connection import RawCall
from datp.hotstore.store import Store
from datp.model.event import START
from datp.settings import Settings
from datp.steps import Context, Parallel, RunPipeline
from datp.steps.registry import Registry, load_registry
from datp.worker.node import Node

# ── registration ─────────────────────────────────────────────────────────────────────────────────────────────────


async def listed(eng: Engine) -> dict[str, dict[str, Any]]:
    """The nodes that are alive, by id."""
    nodes = {}
    for partition in range(eng.store.partitions):
        async with eng.store.turn() as turn:
            reply = turn.list_nodes(partition)
        nodes |= {name: msgspec.json.decode(record) for name, record, _, _ in reply.value}
    return nodes


async def test_a_node_says_who_it_is_and_what_it_can(eng: Engine) -> None:
    async def adds(input: int) -> int:
        """Adds one.

        And nothing else."""
        return input + 1

    eng.step("test/adds", adds, default_definition={"by": 1})
    node = await eng.node(app_version="7.1", build_time="yesterday", workers=3, node_group="other")
    record = (await listed(eng))[node.node_id]
    [adding] = [step_type for step_type in record["stepTypes"] if step_type["name"] == "test/adds"]
    assert adding == {"name": "test/adds", "description": "Adds one.", "defaultDefinition": {"by": 1}}
    assert {name: record[name] for name in ("nodeGroup", "nodeId", "appVersion", "datpVersion", "buildTime")} == {
        "nodeGroup": "other",
        "nodeId": node.node_id,
        "appVersion": "7.1",
        "datpVersion": __version__,
        "buildTime": "yesterday",
    }
    assert (record["roles"], record["workers"], record["busy"], record["paused"]) == (["worker", "wakeup"], 3, 0, False)
    assert record["host"] == platform.node()


async def test_a_node_that_stops_is_gone_at_once(eng: Engine) -> None:
    node = await eng.node()
    assert node.node_id in await listed(eng)
    await node.stop()
    assert await listed(eng) == {}


async def test_a_node_that_dies_is_gone_after_a_while(eng: Engine) -> None:
    dying = await eng.node(node_gone_ms=500)
    await asyncio.sleep(0.6)
    assert dying.node_id in await listed(eng), "its heartbeats keep it"
    await eng.crash(dying)

    async def is_gone() -> bool:
        return dying.node_id not in await listed(eng)

    await until(is_gone, "it is gone", 2)


async def test_all_that_a_dead_node_had_in_hand_goes_on_soon(eng: Engine) -> None:
    """Those that lost a lease want a node that runs nothing else; if each of them did, the last would wait for all."""
    count = 60
    held = eng.held()
    await eng.pipeline("one", held.name)
    dying = await eng.node(workers=count, suspect_solitude_ms=100)
    ids = await eng.start_many("one", range(count))
    await held.began(count)
    await eng.node(workers=count, suspect_solitude_ms=100)
    await eng.crash(dying)
    await held.began(count + 1)
    first = asyncio.get_running_loop().time()
    await held.began(2 * count)
    assert asyncio.get_running_loop().time() - first < 2
    held.let_go()
    assert await eng.finals(ids) == ["success"] * count


async def test_an_unknown_node_group_is_refused_with_the_known_ones(eng: Engine) -> None:
    with pytest.raises(StartRefused) as refused:
        await eng.node(node_group="paymnets")
    assert str(refused.value) == "There is no node group 'paymnets'. Known: fourth, main, other, third"


async def test_an_unknown_role_is_refused_with_the_known_ones(eng: Engine) -> None:
    for roles in ("worker,cook", "", " , "):
        with pytest.raises(StartRefused, match="roles are worker, wakeup"):
            await eng.node(roles=roles)


async def test_a_node_that_can_not_register_does_not_run(eng: Engine) -> None:
    """It refuses to start, and leaves nothing behind that would go on taking work."""
    await eng.pipeline("t", "util/echo")
    node = Node(eng.settings, eng.registry, url=eng.store.url)
    open_store = node.store.open

    async def opens(**more: Any) -> None:
        await open_store(**more)
        execute = node.store.connection.execute

        async def fails(calls: list[RawCall]) -> None:
            if any(call.script.contract.name == "register_node" for call in calls):
                raise RuntimeError("on purpose")
            await execute(calls)

        node.store.connection.execute = fails  # type: ignore[method-assign, assignment]

    node.store.open = opens  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="on purpose"):
        await node.start()
    tx_id = await eng.start("t")
    assert node.ended.is_set()
    assert [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert (await eng.transactions.show(tx_id)).phase == "queued"


# ── settings and definitions ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_node_begins_with_what_its_group_shares(eng: Engine) -> None:
    await eng.definitions.save_group("main", {"workers": 4, "step_timeout_ms": 90})
    eng.held()
    await eng.pipeline("t", "test/held")
    node = await eng.node(workers=50)
    assert node.slots.count == 4
    assert (await eng.run("t")).status == "timeout"


async def test_shared_settings_are_in_force_soon_after_they_are_changed(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("t", "test/held")
    node = await eng.node(workers=2)
    await eng.definitions.save_group("main", {"workers": 4, "step_timeout_ms": 50_000})
    ids = await eng.start_many("t", range(4))
    await held.began(4)
    assert node.slots.count == 4
    held.let_go()
    await eng.finals(ids)
    held.hold()
    await eng.definitions.save_group("main", {"workers": 4, "step_timeout_ms": 90})
    await until(lambda: _is(node.bench.settings.step_timeout_ms, 90), "the new time-out is known")
    assert (await eng.run("t")).status == "timeout"


async def _is(one: Any, other: Any) -> bool:
    return bool(one == other)


async def test_a_setting_that_is_nonsense_leaves_the_node_as_it_was(eng: Engine) -> None:
    node = await eng.node()
    async with eng.store.turn() as turn:
        turn.save_node_groups([("main", '{"step_timeout_ms": -1, "workers": 9}', 0)])
    await eng.ask(node, "reload-settings")
    assert (node.slots.count, node.failure) == (eng.settings.workers, None)
    await eng.pipeline("t", "util/echo")
    assert (await eng.run("t")).status == "success"


async def test_a_transaction_keeps_the_version_that_it_began_with(eng: Engine) -> None:
    held = eng.held()

    async def tells(definition: dict[str, Any]) -> Any:
        return definition["version"]

    eng.step("test/tells", tells)

    async def versions(version: int) -> None:
        for name in ("child", "later"):
            await eng.pipeline(name, {"step": "test/tells", "with": {"version": version}}, nodeGroup="other")
        await eng.pipeline(
            "t", "test/held", {"step": "test/tells", "with": {"version": version}}, {"pipeline": "child"}
        )

    await versions(1)
    node = await eng.node()
    await eng.node(node_group="other")
    queued_for_nobody = await eng.pipeline("waits", {"pipeline": "later"}, nodeGroup="third")
    old, waits = await eng.start("t"), await eng.start("waits")
    await held.began()
    await versions(2)
    await until(lambda: _knows(node, eng), "the node knows the new version")
    held.let_go()
    shown = await eng.transactions.show(old)
    reply = await eng.final(old)
    assert reply.pipeline_version == shown.reply.pipeline_version
    tells_1 = [entry for entry in (await eng.transactions.show(old)).flow if entry["stepType"] == "test/tells"]
    # A child is pinned when it is first used; that was after the activation.
    assert [msgspec.json.decode(entry["output"]) for entry in tells_1] == [1, 2]
    new = await eng.run("t")
    assert (output_of(new), new.pipeline_version != reply.pipeline_version) == (2, True)
    await eng.node(node_group="third")
    assert output_of(await eng.final(waits)) == 2
    assert queued_for_nobody.version == (await eng.transactions.reply(waits)).pipeline_version


async def _knows(node: Node, eng: Engine) -> bool:
    return (await node.definitions.pipelines()) == (await eng.definitions.pipelines())


async def test_a_child_that_is_called_twice_is_the_same_version(eng: Engine) -> None:
    held = eng.held()

    async def tells(definition: dict[str, Any]) -> Any:
        return definition["version"]

    eng.step("test/tells", tells)
    await eng.pipeline("child", {"step": "test/tells", "with": {"version": 1}})
    await eng.pipeline("t", {"pipeline": "child"}, "test/held", {"pipeline": "child"})
    node = await eng.node()
    tx_id = await eng.start("t")
    await held.began()
    await eng.pipeline("child", {"step": "test/tells", "with": {"version": 2}})
    await until(lambda: _knows(node, eng), "the node knows the new version")
    held.let_go()
    assert output_of(await eng.final(tx_id)) == 1


async def test_a_start_of_what_is_not_there_is_refused(eng: Engine) -> None:
    await eng.pipeline("t", "util/echo")
    await eng.definitions.save(eng.parsed("u", "util/echo"), activate=False)
    with pytest.raises(NotFound, match=r"There is no pipeline v\. Known: t"):
        await eng.start("v")
    with pytest.raises(NotFound, match="Pipeline u has no active version"):
        await eng.start("u")


# ── what a node does not know ────────────────────────────────────────────────────────────────────────────────────


async def test_an_unknown_step_type_parks_and_a_node_that_knows_it_goes_on(eng: Engine) -> None:
    await eng.pipeline("t", "util/echo", "test/new")
    old = await eng.node()
    tx_id = await eng.start("t", 20)
    shown = await eng.phase(tx_id, "exception")
    reason = "node group main has no step type test/new (pipeline t, step s2)"
    assert (shown.parked["reason"], shown.reply.note) == (reason, f"parked: {reason}")
    assert shown.reply.status == "waiting"
    await old.stop()

    async def new(context: Context, input: int) -> list[int]:
        return [input + 1, context.attempt]

    eng.step("test/new", new)
    await eng.node()
    await eng.transactions.retry(tx_id)
    reply = await eng.final(tx_id)
    assert (output_of(reply), reply.note) == ([21, 1], None)


async def test_a_retry_before_anything_has_changed_parks_again(eng: Engine) -> None:
    await eng.pipeline("t", "test/new")
    await eng.node()
    tx_id = await eng.start("t")
    first = await eng.phase(tx_id, "exception")
    await eng.transactions.retry(tx_id)
    await until(lambda: _is_parked_since(eng, tx_id, first.parked["at"]), "it is parked again")


async def _is_parked_since(eng: Engine, tx_id: Any, at: int) -> bool:
    shown = await eng.transactions.show(tx_id)
    return shown.phase == "exception" and shown.parked["at"] > at


@pytest.mark.parametrize("how", ["call", "branch"])
async def test_an_unknown_pipeline_parks_and_may_be_added(eng: Engine, how: str) -> None:
    async def goes_on() -> Any:
        from datp.steps import Branch

        return RunPipeline("missing") if how == "call" else Parallel([Branch("missing")])

    eng.step("test/goes-on", goes_on)
    await eng.pipeline("t", "test/goes-on")
    await eng.node()
    tx_id = await eng.start("t", 7)
    shown = await eng.phase(tx_id, "exception")
    assert shown.parked["reason"] == "There is no pipeline missing. Known: t"
    await eng.pipeline("missing", "util/echo")
    await eng.transactions.retry(tx_id)
    output = output_of(await eng.final(tx_id))
    assert output == 7 if how == "call" else output[0]["output"] == 7


async def test_a_version_that_is_gone_parks(eng: Engine) -> None:
    """As when a store was rebuilt without its definitions."""
    definition = await eng.pipeline("t", "util/echo")
    tx_id = await eng.start("t")
    client = eng.store.connection._client(None)
    await client.hdel(f"pipelineH:{eng.store.tags[0]}:t", f"v:{definition.version}")  # type: ignore[no-untyped-call]
    await eng.node()
    shown = await eng.phase(tx_id, "exception")
    assert shown.parked["reason"] == f"There is no version {definition.version} of pipeline t"
    await eng.definitions.save(definition, activate=True)
    await eng.transactions.retry(tx_id)
    assert (await eng.final(tx_id)).status == "success"


@pytest.mark.parametrize("document", [b"{", b"[]", b'{"flow": []}', b'{"format": 2}', b'{"flow": [{"i": 5}]}'])
async def test_a_document_that_can_not_be_read_parks_and_may_be_edited(eng: Engine, document: bytes) -> None:
    await eng.pipeline("t", "util/echo")
    fine, tx_id, other = [await eng.start("t", number) for number in range(3)]
    stored = await eng.transactions.document(tx_id)
    await set_field(eng.store, tx_id, "state", document)
    await eng.node()
    shown_reason = await until(lambda: parked_because(eng, tx_id), "it is parked")
    assert "The stored state cannot be read" in shown_reason
    assert await eng.finals([fine, other]) == ["success", "success"], "its neighbours are not hurt"
    await eng.transactions.retry(tx_id, stored)
    assert output_of(await eng.final(tx_id)) == 1


@pytest.mark.parametrize("event", ["{", '{"kind":"start","at":5}', '{"kind":"joined","at":0}', '{"kind":"dance"}'])
async def test_an_event_that_leads_nowhere_parks(eng: Engine, event: str) -> None:
    await eng.pipeline("t", "util/echo")
    fine, tx_id = [await eng.start("t", number) for number in range(2)]
    await set_field(eng.store, tx_id, "event", event.encode())
    await eng.node()
    await eng.phase(tx_id, "exception")
    assert (await eng.final(fine)).status == "success"
    await set_field(eng.store, tx_id, "event", START.encode())
    await eng.transactions.retry(tx_id)
    assert (await eng.final(tx_id)).status == "success"


async def set_field(store: Store, tx_id: str, name: str, value: bytes) -> None:
    """Behind the store's back."""
    tag = store.tags[int(tx_id[3:5], 32)]
    await store.connection._client(None).hset(f"stateH:{tag}:{tx_id}", name, value)  # type: ignore[misc,arg-type]


async def parked_because(eng: Engine, tx_id: str) -> str:
    async with eng.store.turn() as turn:
        reply = turn.get_state([tx_id], whole=True)
    found: Any = reply.value[0]
    return str(msgspec.json.decode(found.parked)["reason"]) if found.parked else ""


async def test_a_state_that_grows_too_large_is_an_internal_error(eng: Engine) -> None:
    async def grows(context: Context) -> str:
        return context.step_name + "x" * 200_000

    eng.step("test/grows", grows)
    await eng.pipeline("t", *["test/grows"] * 30)
    await eng.node()
    reply = await eng.run("t")
    assert reply.status == "internal-error"
    assert "state_bytes_max" in (reply.note or "")


def test_the_registry_refuses_two_step_types_of_one_name() -> None:
    registry = load_registry("")
    assert registry.get("util/echo") is not None
    assert len(registry) == len(list(registry))
    with pytest.raises(StartRefused, match="can't be imported"):
        load_registry("no.such.module")


def test_an_empty_registry_knows_nothing() -> None:
    assert Registry().get("util/echo") is None
    assert Settings().steps == ""
