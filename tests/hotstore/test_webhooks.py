"""The outbox: a delivery that is owed is a record of its own, until it is delivered or given up."""

import pytest
from driver import Driver

from datp.hotstore.store import WebhookAck

HOOK = '{"url":"http://client/hook"}'
PROGRESS = '{"url":"http://client/hook","progress":true}'
POLL_CANCELS = '{"url":"http://client/hook","pollCancels":true}'


def _ack(tx_id: str, record: dict[str, bytes], result: str, retry_in_ms: int = 0) -> WebhookAck:
    return WebhookAck(tx_id, int(record["sequence"]), result, retry_in_ms, "what it said")


async def test_a_completion_owes_a_delivery_with_all_that_it_tells(hot: Driver) -> None:
    run = await hot.running(webhook=HOOK, external_id="e")
    await hot.complete(run, "failed", note="no stock")
    [(tx_id, record)] = (await hot.webhooks()).claimed
    told = {name: value.decode() for name, value in record.items()}
    assert tx_id == run.tx_id
    assert (told["kind"], told["webhook"], told["owner"], told["type"]) == (
        "transaction.completed",
        HOOK,
        "acme",
        "order",
    )
    assert (told["status"], told["note"], told["external_id"], told["output"]) == ("failed", "no stock", "e", "null")
    assert told["sequence"] == hot.field(tx_id, "sequence")


async def test_a_cancelled_transaction_owes_one_too(hot: Driver) -> None:
    [tx_id] = await hot.queued(webhook=HOOK)
    await hot.cancel(tx_id)
    assert [one for one, _ in (await hot.webhooks()).claimed] == [tx_id]


async def test_nothing_is_owed_to_who_did_not_ask(hot: Driver) -> None:
    await hot.complete(await hot.running())
    run = await hot.running(webhook=HOOK)
    await hot.report_progress(run)
    assert (await hot.webhooks()).claimed == []


async def test_a_claimed_delivery_is_due_again_when_its_sender_died(hot: Driver) -> None:
    await hot.complete(await hot.running(webhook=HOOK))
    first = (await hot.webhooks()).claimed
    assert (await hot.webhooks()).claimed == []
    hot.clock.advance(hot.store.settings.webhook_claim_ms)
    assert [tx_id for tx_id, _ in (await hot.webhooks()).claimed] == [tx_id for tx_id, _ in first]


async def test_a_retry_comes_when_it_was_said_and_counts(hot: Driver) -> None:
    await hot.complete(await hot.running(webhook=HOOK))
    [(tx_id, record)] = (await hot.webhooks()).claimed
    await hot.webhooks(_ack(tx_id, record, "retry", 3_000))
    hot.clock.advance(2_999)
    assert (await hot.webhooks()).claimed == []
    hot.clock.advance(1)
    [(_, again)] = (await hot.webhooks()).claimed
    assert (again["attempt"], again["comment"]) == (b"1", b"what it said")


@pytest.mark.parametrize("result", ["delivered", "moved", "given_up"])
async def test_a_delivery_that_is_done_with_leaves_nothing(result: str, hot: Driver) -> None:
    await hot.complete(await hot.running(webhook=HOOK))
    [(tx_id, record)] = (await hot.webhooks()).claimed
    await hot.webhooks(_ack(tx_id, record, result))
    assert not hot.raw.exists(hot.key("webhook", tx_id=tx_id), hot.key("webhooks"))


async def test_a_delivery_lives_though_its_transaction_has_left_memory(hot: Driver) -> None:
    run = await hot.running(webhook=HOOK)
    await hot.complete(run)
    hot.raw.delete(hot.key("state", tx_id=run.tx_id))
    for place in ("to_archive", "started"):
        hot.raw.zrem(hot.key(place), run.tx_id)
    assert [tx_id for tx_id, _ in (await hot.webhooks()).claimed] == [run.tx_id]


async def test_a_newer_report_replaces_one_that_still_waits(hot: Driver) -> None:
    run = await hot.running(webhook=PROGRESS)
    await hot.report_progress(run, "1")
    await hot.report_progress(run, "2")
    [(_, record)] = (await hot.webhooks()).claimed
    assert (record["kind"], record["progress"]) == (b"transaction.progress", b"2")


async def test_what_comes_while_one_is_being_sent_waits_for_it_so_that_they_never_overtake(hot: Driver) -> None:
    run = await hot.running(webhook=PROGRESS)
    await hot.report_progress(run, "1")
    [(tx_id, sent)] = (await hot.webhooks()).claimed
    await hot.complete(run)
    assert (await hot.webhooks()).claimed == []
    reply = await hot.webhooks(_ack(tx_id, sent, "delivered"))
    assert [result.code for result in reply.acknowledged] == ["REPLACED"]
    [(_, record)] = reply.claimed
    assert record["kind"] == b"transaction.completed"


async def test_a_failed_try_of_an_older_report_does_not_hold_up_the_newer(hot: Driver) -> None:
    run = await hot.running(webhook=PROGRESS)
    await hot.report_progress(run, "1")
    [(tx_id, sent)] = (await hot.webhooks()).claimed
    await hot.complete(run)
    reply = await hot.webhooks(_ack(tx_id, sent, "retry", 60_000))
    [(_, record)] = reply.claimed
    assert (record["kind"], record["attempt"]) == (b"transaction.completed", b"0")


async def test_a_poll_cancels_the_delivery_when_that_was_asked_for(hot: Driver) -> None:
    for webhook, is_owed in ((POLL_CANCELS, False), (HOOK, True)):
        run = await hot.running(webhook=webhook)
        await hot.complete(run)
        await hot.get(run.tx_id, mark_replied=True)
        assert hot.raw.exists(hot.key("webhook", tx_id=run.tx_id)) == is_owed


async def test_a_poll_of_what_still_runs_cancels_nothing_and_marks_nothing(hot: Driver) -> None:
    run = await hot.running(webhook='{"url":"u","progress":true,"pollCancels":true}')
    await hot.report_progress(run)
    await hot.get(run.tx_id, mark_replied=True)
    assert hot.field(run.tx_id, "notified_at") is None
    assert len((await hot.webhooks()).claimed) == 1
