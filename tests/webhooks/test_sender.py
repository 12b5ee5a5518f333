"""Clients are told: signed, in order, again after failures, and by any number of senders."""

import asyncio
from typing import Any

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook
from webhooks.conftest import KEY, sender_of, teller
from webhooks.receivers import OK, Receiver, Request, closes, never, receiver, status
from worker.support import Engine, Held, until

from datp.model.reply import encode_reply
from datp.steps import Context
from datp.worker.node import Node


async def counting(eng: Engine, to: int) -> Held:
    """A pipeline whose one step reports how far it is, and is held before it ends."""
    held = Held("test/count")

    async def count(context: Context) -> Any:
        for number in range(1, to + 1):
            await context.report_progress(number)
        return await held(context)

    eng.step("test/count", count)
    await eng.pipeline("counting", "test/count")
    return held


def told(there: Receiver) -> list[tuple[str, Any]]:
    return [request.said for request in there.requests]


async def nothing_is_owed(eng: Engine) -> None:
    async def owed() -> bool:
        async with eng.store.turn() as turn:
            replies = [turn.list_webhooks(partition) for partition in range(eng.store.partitions)]
        return not any(reply.value for reply in replies)

    await until(owed, "nothing is owed")


async def crash(eng: Engine, node: Node) -> None:
    """As if its process had been killed while it sent."""
    sender = sender_of(node)
    await eng.crash(node)
    for task in list(sender._tasks):
        task.cancel()
    await sender._poster.close()


async def test_a_client_is_told_the_end_and_can_trust_it(eng: Engine) -> None:
    await eng.pipeline("echo", "util/echo")
    await teller(eng)
    async with receiver() as there:
        tx_id = await eng.start("echo", {"n": [1, 2.5, None]}, metadata={"webhook": there.url()}, external_id="ü 1")
        [request] = await there.heard()
    document = Webhook(KEY).verify(request.body, request.headers)
    reply = await eng.transactions.reply(tx_id)
    assert document["type"] == "transaction.completed"
    assert document["timestamp"] == reply.completion_time
    assert request.body.endswith(b'"data":' + encode_reply(reply) + b"}"), "the reply's own bytes"
    assert request.headers["webhook-id"] == f"{tx_id}-{reply.sequence}"
    assert "." not in request.headers["webhook-id"]
    await nothing_is_owed(eng)


async def test_a_failure_is_tried_again_with_the_same_id_and_body(eng: Engine) -> None:
    await eng.pipeline("echo", "util/echo")
    await teller(eng)
    async with receiver(status(500), closes, status(429), OK) as there:
        await eng.start("echo", metadata={"webhook": there.url()})
        requests = await there.heard(4)
        await nothing_is_owed(eng)
    assert len({request.headers["webhook-id"] for request in requests}) == 1
    assert len({request.body for request in requests}) == 1
    for request in requests:
        Webhook(KEY).verify(request.body, request.headers)


async def test_each_report_comes_in_order_and_the_end_last_whatever_fails(eng: Engine) -> None:
    held = await counting(eng, 5)
    await teller(eng)
    async with receiver(OK, status(500), OK, closes, status(503), OK) as there:
        await eng.start("counting", metadata={"webhook": there.url(), "progressReports": "all"})
        await held.began()
        held.let_go("done")
        await nothing_is_owed(eng)
    distinct = list(dict.fromkeys(told(there)))
    assert distinct == [*(("progress", n) for n in range(1, 6)), ("completed", "success")]
    assert told(there) == sorted(told(there), key=distinct.index), "nothing old after something newer"
    sequences = [request.json["data"]["sequence"] for request in there.requests]
    assert sequences == sorted(sequences)


async def test_the_latest_report_is_enough_and_the_end_does_not_wait_for_it(eng: Engine) -> None:
    held = await counting(eng, 50)
    await teller(eng)
    gate = asyncio.Event()

    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        writer.write(OK)

    async with receiver(slow, OK) as there:
        await eng.start("counting", metadata={"webhook": there.url(), "progressReports": True})
        await there.heard()
        await held.began()
        held.let_go("done")
        await eng.store.hear_bell(["nobody"], 0.05)
        gate.set()
        await nothing_is_owed(eng)
    assert told(there)[0][0] == "progress"
    assert told(there)[-1] == ("completed", "success")
    assert len(there.requests) < 10


async def test_who_did_not_ask_for_reports_gets_none(eng: Engine) -> None:
    held = await counting(eng, 3)
    held.let_go()
    await teller(eng)
    async with receiver() as there:
        await eng.start("counting", metadata={"webhook": there.url()})
        await nothing_is_owed_after(eng, there)
    assert told(there) == [("completed", "success")]


async def nothing_is_owed_after(eng: Engine, there: Receiver) -> None:
    await there.heard()
    await nothing_is_owed(eng)


async def test_a_slow_receiver_and_a_dead_one_hold_up_nobody(eng: Engine) -> None:
    await eng.pipeline("echo", "util/echo")
    await teller(eng, webhook_per_host_max=4, webhook_timeout_ms=5_000, webhook_claim_ms=8_000)
    async with receiver(never) as slow, receiver() as dead, receiver() as good:
        dead_url = dead.url()
        await dead.stop()
        for _ in range(30):
            await eng.start("echo", metadata={"webhook": slow.url()})
            await eng.start("echo", metadata={"webhook": dead_url})
        await slow.heard(4)
        for _ in range(30):
            await eng.start("echo", metadata={"webhook": good.url()})
        await good.heard(30, within_s=4.0)
        assert slow.open_most <= 4
        await _forget(eng)


async def _forget(eng: Engine) -> None:
    """What is still owed is not waited for."""
    for node in list(eng.nodes):
        await node.stop()
        eng.nodes.remove(node)


async def test_two_senders_share_the_work_and_nothing_is_sent_twice(eng: Engine) -> None:
    await eng.pipeline("echo", "util/echo")
    nodes = [await teller(eng, webhook_batch=10) for _ in range(2)]
    async with receiver() as there:
        ids = [await eng.start("echo", metadata={"webhook": there.url()}) for _ in range(200)]
        await there.heard(200)
        await nothing_is_owed(eng)
    assert sorted(request.json["data"]["txId"] for request in there.requests) == sorted(ids)
    assert all(sender_of(node).sent > 0 for node in nodes)


async def test_what_a_dead_sender_had_in_hand_is_sent_by_another(eng: Engine) -> None:
    await eng.pipeline("echo", "util/echo")
    first = await teller(eng)
    async with receiver(never, OK) as there:
        await eng.start("echo", metadata={"webhook": there.url()})
        await there.heard()
        await crash(eng, first)
        await teller(eng)
        requests = await there.heard(2)
        await nothing_is_owed(eng)
    assert len({request.headers["webhook-id"] for request in requests}) == 1


async def test_a_sender_that_stops_finishes_what_it_sends_and_gives_the_rest_back(eng: Engine) -> None:
    await eng.pipeline("echo", "util/echo")
    node = await teller(eng, webhook_per_host_max=1, webhook_timeout_ms=1_000)

    async def slowly(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        writer.write(OK)

    async with receiver(slowly, OK) as there:
        for _ in range(2):
            await eng.start("echo", metadata={"webhook": there.url()})
        await there.heard()
        await _forget(eng)
        assert sender_of(node).sent == 1
        async with eng.store.turn() as turn:
            replies = [turn.list_webhooks(partition) for partition in range(2)]
        [left] = [one for reply in replies for one in reply.value]
        assert (left.attempt, left.is_claimed) == (0, False)
        await teller(eng)
        await there.heard(2)
        await nothing_is_owed(eng)


async def test_without_sql_a_delivery_is_parked_in_the_store_and_can_be_sent_again(eng: Engine) -> None:
    await eng.pipeline("echo", "util/echo")
    await teller(eng)
    async with receiver(*[status(500)] * 5, OK) as there:
        tx_id = await eng.start("echo", metadata={"webhook": there.url()})
        await there.heard(5)

        async def parked() -> bool:
            async with eng.store.turn() as turn:
                replies = [turn.list_webhooks(partition) for partition in range(2)]
            return any(one.is_parked for reply in replies for one in reply.value)

        await until(parked, "it is parked")
        async with eng.store.turn() as turn:
            turn.resend_webhook([tx_id])
        await there.heard(6)
        await nothing_is_owed(eng)
    [event] = [one for one in await eng.nodes[0].events.list() if one.code == "webhook-given-up"]
    assert tx_id in event.text


async def test_a_poll_that_was_answered_with_the_end_cancels_the_delivery(eng: Engine) -> None:
    await eng.pipeline("echo", "util/echo")
    await teller(eng, roles="worker,wakeup")
    tx_id = await eng.start("echo", metadata={"webhook": "http://127.0.0.1:9/", "pollReplyCancelsWebhook": True})
    await eng.final(tx_id)
    async with eng.store.turn() as turn:
        turn.get_state([tx_id], replied_to="acme")
    await nothing_is_owed(eng)


async def test_a_record_that_can_not_be_sent_is_given_up_and_holds_up_nobody(eng: Engine) -> None:
    await eng.pipeline("echo", "util/echo")
    await teller(eng, roles="worker,wakeup")
    async with receiver() as there:
        broken = await eng.start("echo", metadata={"webhook": there.url()})
        await eng.final(broken)
        from redis import Redis

        from datp.hotstore.keys import key
        from datp.model.ids import partition_of

        raw = Redis.from_url(eng.store.url)
        raw.hset(key("webhook", eng.store.tags[partition_of(broken)], tx_id=broken), "webhook", "no JSON")
        raw.close()
        await teller(eng)
        await eng.start("echo", metadata={"webhook": there.url()})
        await there.heard()
        await nothing_is_owed(eng)


async def test_a_large_output_is_told_whole(eng: Engine) -> None:
    await eng.pipeline("echo", "util/echo")
    await teller(eng)
    text = "x" * 200_000
    async with receiver() as there:
        await eng.start("echo", text, metadata={"webhook": there.url()})
        [request] = await there.heard()
    assert msgspec.json.decode(request.body)["data"]["transactionOutput"] == text


async def test_a_node_without_keys_refuses_the_role(eng: Engine) -> None:
    from datp.errors import StartRefused

    with pytest.raises(StartRefused, match="DATP_WEBHOOK_KEYS"):
        await teller(eng, webhook_keys="")


async def test_statuses_are_told_as_they_change(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("waits", "test/held", {"step": "util/wait", "with": {"switch": "go"}})
    await teller(eng)
    async with receiver() as there:
        metadata = {"webhook": there.url(), "statusReports": True, "progressReports": "all"}
        tx_id = await eng.start("waits", metadata=metadata)
        await held.began()
        held.let_go()
        await eng.phase(tx_id, "waiting")
        await eng.transactions.set_switch(tx_id, "go", True)
        await eng.final(tx_id)
        await nothing_is_owed(eng)
    assert told(there) == [
        ("status", "running"),
        ("status", "waiting"),
        ("status", "queued"),
        ("status", "running"),
        ("completed", "success"),
    ]
