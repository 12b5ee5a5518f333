"""Admin events: what operators ask of nodes while they run, each done once, and answered."""

import asyncio
from typing import Any

import msgspec
from servers import Server
from worker.support import Engine, Refused, until

from datp.errors import StoreUnreachable
from datp.hotstore.connection import RawCall
from datp.worker.node import Node


async def events_waiting(eng: Engine, node: Node) -> int:
    """How many events stand in the node's admin queue."""
    tag = eng.store.tags[eng.store.home(node.node_id)]
    commands = [("LRANGE", f"qAdminL:{tag}:{node.node_id}", 0, -1)]
    [events] = await eng.store.connection.read(eng.store.home(node.node_id), commands)
    return len(events)


async def test_a_node_answers_a_ping(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("t", "test/held")
    node = await eng.node(workers=7)
    assert await eng.ask(node, "ping") == {"busy": 0, "workers": 7}
    tx_id = await eng.start("t")
    await held.began()
    assert await eng.ask(node, "ping") == {"busy": 1, "workers": 7}
    held.let_go()
    await eng.final(tx_id)


async def test_an_answer_comes_by_the_bell(eng: Engine) -> None:
    node = await eng.node(idle_look_ms=20_000)
    await eng.ask(node, "ping")
    began = asyncio.get_running_loop().time()
    await eng.ask(node, "ping")
    assert asyncio.get_running_loop().time() - began < 5


async def test_a_node_takes_over_new_definitions_and_settings(eng: Engine) -> None:
    await eng.pipeline("t", "util/echo")
    node = await eng.node(definitions_look_ms=60_000)
    await eng.pipeline("u", "util/echo")
    await eng.definitions.save_group("main", {"workers": 3})
    assert await eng.ask(node, "reload-definitions") == {"pipelines": 2}
    assert node.slots.count == 3
    await eng.definitions.save_group("main", {"workers": 4})
    await eng.ask(node, "reload-settings")
    assert node.slots.count == 4


async def test_the_number_of_slots_is_set_while_they_run(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("t", "test/held")
    node = await eng.node(workers=2)
    ids = await eng.start_many("t", range(9))
    await held.began(2)
    assert await eng.ask(node, "set-workers", {"workers": 5}) == {"workers": 5}
    await held.began(5)
    assert await eng.ask(node, "set-workers", {"workers": 1}) == {"workers": 1}
    assert node.slots.busy == 5, "what runs goes on"
    held.let_go()
    assert await eng.finals(ids) == ["success"] * 9
    assert await record_of(eng, node, "workers") == 1


async def test_fewer_slots_run_no_more_at_once(eng: Engine) -> None:
    at_once, most = 0, 0

    async def counts() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.002)
        at_once -= 1

    eng.step("test/counts", counts)
    await eng.pipeline("t", "test/counts")
    node = await eng.node(workers=8)
    await eng.finals(await eng.start_many("t", range(30)))
    assert most == 8
    await eng.ask(node, "set-workers", {"workers": 2})
    most = 0
    await eng.finals(await eng.start_many("t", range(30)))
    assert most == 2


async def test_no_slots_take_nothing(eng: Engine) -> None:
    await eng.pipeline("t", "util/echo")
    node = await eng.node()
    await eng.ask(node, "set-workers", {"workers": 0})
    tx_id = await eng.start("t")
    await eng.ask(node, "ping")
    await eng.ask(node, "ping")
    assert (await eng.transactions.show(tx_id)).phase == "queued"
    await eng.ask(node, "set-workers", {"workers": 1})
    assert (await eng.final(tx_id)).status == "success"


async def test_a_bad_number_of_slots_is_refused(eng: Engine) -> None:
    node = await eng.node(workers=3)
    for bad in (-1, 10_001, "many", True, None, 1.5):
        answer = await eng.ask(node, "set-workers", {"workers": bad})
        assert answer == Refused("set-workers needs workers: a number from 0 to 10000")
    assert node.slots.count == 3


async def record_of(eng: Engine, node: Node, field: str) -> Any:
    """What the node's registration says now."""
    async with eng.store.turn() as turn:
        reply = turn.list_nodes(eng.store.home(node.node_id))
    for name, record, _, _ in reply.value:
        if name == node.node_id:
            return msgspec.json.decode(record)[field]
    return None


async def test_a_paused_node_takes_nothing_until_it_resumes(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("held", "test/held")
    await eng.pipeline("t", "util/echo")
    node = await eng.node()
    running = await eng.start("held")
    await held.began()
    assert await eng.ask(node, "pause") == {"paused": True}
    assert await record_of(eng, node, "paused") is True
    tx_id = await eng.start("t")
    held.let_go()
    assert (await eng.final(running)).status == "success", "what runs goes on"
    await eng.ask(node, "ping")
    assert (await eng.transactions.show(tx_id)).phase == "queued"
    assert await eng.ask(node, "resume") == {"paused": False}
    assert (await eng.final(tx_id)).status == "success"
    assert await record_of(eng, node, "paused") is False


async def test_a_cancel_reaches_what_a_paused_node_runs(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("t", "test/held")
    node = await eng.node(cancel_grace_ms=30_000)
    tx_id = await eng.start("t")
    context = await held.began()
    await eng.ask(node, "pause")
    await eng.transactions.cancel(tx_id)

    async def hears() -> bool:
        return context.cancelled

    await until(hears, "the step hears of it")
    held.let_go()
    assert (await eng.final(tx_id)).status == "cancelled"


async def test_a_drained_node_answers_when_nothing_is_in_its_hands(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("t", "test/held")
    node = await eng.node()
    running = await eng.start("t")
    await held.began()
    event_id = await eng.send(node.node_id, "drain")

    async def drains() -> bool:
        return node.taker.draining

    await until(drains, "it drains")
    later = await eng.start("t")
    assert await eng.answer(node.node_id, event_id) is None
    assert await eng.ask(node, "ping") == {"busy": 1, "workers": node.slots.count}, "it still hears"
    held.let_go()
    said = await until(lambda: eng.answer(node.node_id, event_id), "the drain is answered")
    assert said is not None and said["answer"] == {"inHand": 0}
    assert (await eng.transactions.reply(running)).status == "success"
    assert (await eng.transactions.show(later)).phase == "queued"
    await eng.ask(node, "resume")
    assert (await eng.final(later)).status == "success"


async def test_an_idle_node_drains_at_once(eng: Engine) -> None:
    node = await eng.node()
    assert await eng.ask(node, "drain") == {"inHand": 0}


async def test_what_a_node_does_not_know_is_refused_with_what_it_knows(eng: Engine) -> None:
    node = await eng.node()
    answer = await eng.ask(node, "dance")
    assert answer == Refused(
        "this node doesn't know dance; it knows drain, pause, ping, reload-definitions, reload-settings, resume,"
        " set-workers"
    )


async def test_an_event_that_is_given_again_is_done_once(eng: Engine) -> None:
    """Its answer does not get through; it is given again and again until that does."""
    node = await eng.node()
    done: list[str] = []
    given: list[int] = []

    async def on_ping(args: dict[str, Any]) -> str:
        done.append("ping")
        return "done"

    give, execute = node.taker._on_admin, node.store.connection.execute

    def count(partition: int, events: list[bytes]) -> None:
        given.append(len(events))
        give(partition, events)

    async def without_answers(calls: list[RawCall]) -> None:
        if len(given) < 3 and any(call.script.contract.name == "answer_admin" for call in calls):
            for call in calls:
                call.reply = StoreUnreachable("on purpose")
        else:
            await execute(calls)

    node.admin._handlers["ping"] = on_ping
    node.taker._on_admin = count
    node.store.connection.execute = without_answers  # type: ignore[method-assign, assignment]
    assert await eng.ask(node, "ping") == "done"
    assert len(given) >= 3
    assert done == ["ping"]
    await until(lambda: _none_waiting(eng, node), "it has left the queue")


async def _none_waiting(eng: Engine, node: Node) -> bool:
    return await events_waiting(eng, node) == 0


async def test_an_event_that_has_expired_is_not_done(eng: Engine) -> None:
    node = await eng.node()
    event_id = await eng.send(node.node_id, "pause", expiresAt=eng.store.clock.now_ms() - 1_000)
    said = await until(lambda: eng.answer(node.node_id, event_id), "it is answered")
    assert said is not None
    assert (said["ok"], said["answer"]) == (False, "it expired before this node took it up")
    assert not node.taker.paused


async def test_what_can_not_be_read_is_dropped_and_what_follows_is_done(eng: Engine) -> None:
    node = await eng.node()
    async with eng.store.turn() as turn:
        turn.send_admin([(node.node_id, text) for text in ("not json", "[]", '{"id": 1}', "{}")])
    assert await eng.ask(node, "ping") == {"busy": 0, "workers": node.slots.count}
    await until(lambda: _none_waiting(eng, node), "they have left the queue")


async def test_the_last_event_is_told_of_a_node(eng: Engine) -> None:
    node = await eng.node()
    await eng.ask(node, "ping")
    await eng.ask(node, "pause")
    async with eng.store.turn() as turn:
        reply = turn.list_nodes(eng.store.home(node.node_id))
    [last] = [last for name, _, _, last in reply.value if name == node.node_id]
    assert msgspec.json.decode(last)["kind"] == "pause"


async def test_a_handler_that_fails_is_answered_with_why(eng: Engine) -> None:
    node = await eng.node()

    async def fails(args: dict[str, Any]) -> None:
        raise ValueError("no such thing")

    node.admin._handlers["ping"] = fails
    assert await eng.ask(node, "ping") == Refused("no such thing")
    assert node.failure is None


async def test_a_node_without_the_role_worker_hears_too(eng: Engine) -> None:
    await eng.pipeline("t", "util/echo")
    node = await eng.node(roles="wakeup")
    assert await eng.ask(node, "ping") == {"busy": 0, "workers": node.slots.count}
    assert await eng.ask(node, "resume") == {"paused": True}, "it stays without work"
    tx_id = await eng.start("t")
    await eng.ask(node, "ping")
    assert (await eng.transactions.show(tx_id)).phase == "queued"


async def test_nothing_is_kept_of_a_node_that_has_stopped(eng: Engine, valkey_server: Server) -> None:
    node = await eng.node()
    await eng.ask(node, "ping")
    await eng.send(node.node_id, "ping")
    await node.stop()
    raw = valkey_server.client()
    lasting = [key for key in raw.scan_iter("*") if raw.ttl(key) < 0]
    named = [key for key in lasting if node.node_id in key]
    named += [key for key in lasting if raw.type(key) == "hash" and raw.hexists(key, node.node_id)]
    assert named == []
