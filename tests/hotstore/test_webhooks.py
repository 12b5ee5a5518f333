"""The outbox: what is owed to a client is a chain of records, of which the first is tried until it is done with."""

from collections.abc import Sequence

import pytest
from driver import Driver

from datp.hotstore.store import Archivable, ArchiveAck, ToSend, WebhookAck

HOOK = '{"url":"http://client/hook"}'
PROGRESS = '{"url":"http://client/hook","progress":true}'
EACH = '{"url":"http://client/hook","progress":"all"}'
POLL_CANCELS = '{"url":"http://client/hook","pollCancels":true}'
URL = "http://client/hook"


def ack(tx_id: str, record: dict[str, bytes], result: str = "delivered", retry_in_ms: int = 0) -> WebhookAck:
    return WebhookAck(tx_id, record["claim"].decode(), result, retry_in_ms, "what it said")


def told(reply: ToSend) -> list[tuple[str, str]]:
    """What is claimed: of each the kind, and the report or the status."""
    return [
        (record["kind"].decode().removeprefix("transaction."), (record["status"] or record["progress"]).decode())
        for _, record in reply.claimed
    ]


def stored(archivable: Archivable) -> ArchiveAck:
    return ArchiveAck(archivable.tx_id, archivable.version, 1)


def codes(reply: ToSend) -> list[str]:
    return [result.code for result in reply.acknowledged]


# ── what is owed ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_completion_owes_a_delivery_with_all_that_it_tells(hot: Driver) -> None:
    run = await hot.running(webhook=HOOK, external_id="e")
    await hot.complete(run, "failed", note="no stock")
    [(tx_id, record)] = (await hot.webhooks()).claimed
    said = {name: value.decode() for name, value in record.items()}
    assert tx_id == run.tx_id
    assert (said["kind"], said["webhook"], said["owner"], said["type"]) == (
        "transaction.completed",
        HOOK,
        "acme",
        "order",
    )
    assert (said["status"], said["note"], said["external_id"], said["output"]) == ("failed", "no stock", "e", "null")
    assert said["sequence"] == hot.field(tx_id, "sequence")


async def test_a_cancelled_transaction_owes_one_too(hot: Driver) -> None:
    [tx_id] = await hot.queued(webhook=HOOK)
    await hot.cancel(tx_id)
    assert [one for one, _ in (await hot.webhooks()).claimed] == [tx_id]


async def test_nothing_is_owed_to_who_did_not_ask(hot: Driver) -> None:
    await hot.complete(await hot.running())
    run = await hot.running(webhook=HOOK)
    await hot.report_progress(run)
    assert (await hot.webhooks()).claimed == []


async def test_a_delivery_lives_though_its_transaction_has_left_memory(hot: Driver) -> None:
    run = await hot.running(webhook=HOOK)
    await hot.complete(run)
    hot.raw.delete(hot.key("state", tx_id=run.tx_id))
    for place in ("to_archive", "started"):
        hot.raw.zrem(hot.key(place), run.tx_id)
    reply = await hot.webhooks()
    assert [tx_id for tx_id, _ in reply.claimed] == [run.tx_id]
    [result] = (await hot.webhooks(ack(*reply.claimed[0]))).acknowledged
    assert (result.code, result.text) == ("OK", "1"), "SQL alone knows it, and must be told"


async def test_a_sender_that_waits_hears_the_bell(hot: Driver) -> None:
    await hot.complete(await hot.running(webhook=HOOK))
    assert await hot.store.hear_bell([":webhooks"], 1.0)


async def test_what_is_owed_can_be_looked_at(hot: Driver) -> None:
    run = await hot.running(webhook=EACH)
    await hot.report_progress(run, "1")
    await hot.report_progress(run, "2")
    [claimed] = (await hot.webhooks()).claimed
    await hot.webhooks(ack(*claimed, "retry", 5_000))
    [owed] = await hot.owed_webhooks()
    assert (owed.tx_id, owed.kind, owed.owner, owed.attempt, owed.behind) == (
        run.tx_id,
        "transaction.progress",
        "acme",
        1,
        1,
    )
    assert (owed.comment, owed.is_claimed, owed.is_parked) == ("what it said", False, False)
    assert owed.due_ms == hot.clock.now_ms() + 5_000
    await hot.complete(run)


# ── claims ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_claimed_delivery_is_due_again_when_its_sender_died(hot: Driver) -> None:
    await hot.complete(await hot.running(webhook=HOOK))
    first = await hot.webhooks()
    assert first.next_due_ms == hot.clock.now_ms() + hot.store.settings.webhook_claim_ms
    assert (await hot.webhooks()).claimed == []
    hot.clock.advance(hot.store.settings.webhook_claim_ms)
    assert [tx_id for tx_id, _ in (await hot.webhooks()).claimed] == [tx_id for tx_id, _ in first.claimed]


@pytest.mark.parametrize("result", ["delivered", "retry", "moved"])
async def test_who_lost_its_claim_decides_nothing(result: str, hot: Driver) -> None:
    await hot.complete(await hot.running(webhook=HOOK))
    [late] = (await hot.webhooks()).claimed
    hot.clock.advance(hot.store.settings.webhook_claim_ms)
    [current] = (await hot.webhooks()).claimed
    reply = await hot.webhooks(ack(*late, result, 60_000))
    assert codes(reply) == ["STALE"]
    assert codes(await hot.webhooks(ack(*current))) == ["OK"]
    assert (await hot.owed_webhooks()) == []


async def test_a_retry_comes_when_it_was_said_and_counts(hot: Driver) -> None:
    await hot.complete(await hot.running(webhook=HOOK))
    [claimed] = (await hot.webhooks()).claimed
    await hot.webhooks(ack(*claimed, "retry", 3_000))
    hot.clock.advance(2_999)
    assert (await hot.webhooks()).claimed == []
    hot.clock.advance(1)
    [(_, again)] = (await hot.webhooks()).claimed
    assert (again["attempt"], again["comment"]) == (b"1", b"what it said")


async def test_what_was_not_tried_does_not_count(hot: Driver) -> None:
    await hot.complete(await hot.running(webhook=HOOK))
    [claimed] = (await hot.webhooks()).claimed
    await hot.webhooks(ack(*claimed, "postponed", 3_000))
    assert (await hot.webhooks()).claimed == []
    hot.clock.advance(3_000)
    [(_, again)] = (await hot.webhooks()).claimed
    assert again["attempt"] == b"0"


@pytest.mark.parametrize("result", ["delivered", "moved", "given_up"])
async def test_a_delivery_that_is_done_with_leaves_nothing(result: str, hot: Driver) -> None:
    await hot.complete(await hot.running(webhook=HOOK))
    [claimed] = (await hot.webhooks()).claimed
    await hot.webhooks(ack(*claimed, result))
    assert not hot.raw.exists(hot.key("webhook", tx_id=claimed[0]), hot.key("webhooks"))


async def test_a_record_that_can_not_be_read_does_not_hold_up_the_others(hot: Driver) -> None:
    tx_id = hot.new_id()
    hot.raw.set(hot.key("webhook", tx_id=tx_id), "no hash")
    hot.raw.zadd(hot.key("webhooks"), {tx_id: 0})
    run = await hot.running(webhook=HOOK)
    await hot.complete(run)
    assert [one for one, _ in (await hot.webhooks()).claimed] == [run.tx_id]


# ── order: the newest replaces what waits ────────────────────────────────────────────────────────────────────────


async def test_a_newer_report_replaces_one_that_still_waits(hot: Driver) -> None:
    run = await hot.running(webhook=PROGRESS)
    await hot.report_progress(run, "1")
    await hot.report_progress(run, "2")
    assert told(await hot.webhooks()) == [("progress", "2")]


async def test_what_comes_while_one_is_being_sent_waits_for_it_so_that_they_never_overtake(hot: Driver) -> None:
    run = await hot.running(webhook=PROGRESS)
    await hot.report_progress(run, "1")
    [sent] = (await hot.webhooks()).claimed
    await hot.report_progress(run, "2")
    await hot.complete(run)
    assert (await hot.webhooks()).claimed == []
    reply = await hot.webhooks(ack(*sent))
    assert codes(reply) == ["REPLACED"]
    assert told(reply) == [("completed", "success")]


async def test_a_failed_try_of_an_older_report_does_not_hold_up_the_end(hot: Driver) -> None:
    run = await hot.running(webhook=PROGRESS)
    await hot.report_progress(run, "1")
    [sent] = (await hot.webhooks()).claimed
    await hot.complete(run)
    reply = await hot.webhooks(ack(*sent, "retry", 60_000))
    assert told(reply) == [("completed", "success")]
    assert reply.claimed[0][1]["attempt"] == b"0"


@pytest.mark.parametrize("is_sending", [True, False])
async def test_a_newer_report_keeps_the_time_of_one_that_failed(is_sending: bool, hot: Driver) -> None:
    run = await hot.running(webhook=PROGRESS)
    await hot.report_progress(run, "1")
    [sent] = (await hot.webhooks()).claimed
    if is_sending:
        await hot.report_progress(run, "2")
    await hot.webhooks(ack(*sent, "retry", 5_000))
    if not is_sending:
        await hot.report_progress(run, "2")
    assert (await hot.webhooks()).claimed == []
    hot.clock.advance(5_000)
    reply = await hot.webhooks()
    assert told(reply) == [("progress", "2")]
    assert reply.claimed[0][1]["attempt"] == b"1"
    await hot.complete(run)


async def test_what_came_while_a_sender_died_replaces_what_it_had(hot: Driver) -> None:
    run = await hot.running(webhook=PROGRESS)
    await hot.report_progress(run, "1")
    assert told(await hot.webhooks()) == [("progress", "1")]
    await hot.report_progress(run, "2")
    await hot.complete(run)
    hot.clock.advance(hot.store.settings.webhook_claim_ms)
    assert told(await hot.webhooks()) == [("completed", "success")]


# ── order: each ──────────────────────────────────────────────────────────────────────────────────────────────────


async def _all_told(hot: Driver, results: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Everything that is sent, one after the other, the first ones with these results."""
    found: list[tuple[str, str]] = []
    reply = await hot.webhooks()
    for result in (*results, *["delivered"] * 2_000):
        if not reply.claimed:
            break
        found += told(reply)
        [claimed] = reply.claimed
        reply = await hot.webhooks(ack(*claimed, result))
    return found


async def test_each_report_is_told_in_order_and_the_end_last(hot: Driver) -> None:
    run = await hot.running(webhook=EACH)
    for report in "123":
        await hot.report_progress(run, report)
    await hot.complete(run)
    assert await _all_told(hot) == [("progress", "1"), ("progress", "2"), ("progress", "3"), ("completed", "success")]


async def test_a_report_that_fails_holds_up_those_after_it_until_it_is_given_up(hot: Driver) -> None:
    run = await hot.running(webhook=EACH)
    for report in "12":
        await hot.report_progress(run, report)
    await hot.complete(run)
    assert await _all_told(hot, ["retry", "retry", "given_up"]) == [
        *[("progress", "1")] * 3,
        ("progress", "2"),
        ("completed", "success"),
    ]


async def test_each_is_sent_again_when_its_sender_died(hot: Driver) -> None:
    run = await hot.running(webhook=EACH)
    for report in "12":
        await hot.report_progress(run, report)
    await hot.webhooks()
    await hot.complete(run)
    hot.clock.advance(hot.store.settings.webhook_claim_ms)
    assert await _all_told(hot) == [("progress", "1"), ("progress", "2"), ("completed", "success")]


async def test_a_chain_has_an_end(hot: Driver) -> None:
    run = await hot.running(webhook=EACH)
    for report in range(1_003):
        await hot.report_progress(run, str(report))
    await hot.complete(run)
    [owed] = await hot.owed_webhooks()
    assert owed.behind == 1_000
    everything = await _all_told(hot)
    assert everything[0] == ("progress", "0")
    assert everything[-1] == ("completed", "success")
    assert len(everything) == 1_001


# ── a poll is enough ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_poll_cancels_the_delivery_when_that_was_asked_for(hot: Driver) -> None:
    for webhook, is_owed in ((POLL_CANCELS, False), (HOOK, True)):
        run = await hot.running(webhook=webhook)
        await hot.complete(run)
        await hot.get(run.tx_id, replied_to="acme")
        assert hot.raw.exists(hot.key("webhook", tx_id=run.tx_id)) == is_owed


async def test_a_poll_of_what_still_runs_cancels_nothing_and_marks_nothing(hot: Driver) -> None:
    run = await hot.running(webhook='{"url":"u","progress":true,"pollCancels":true}')
    await hot.report_progress(run)
    await hot.get(run.tx_id, replied_to="acme")
    assert hot.field(run.tx_id, "notified_at") is None
    assert len((await hot.webhooks()).claimed) == 1


async def test_a_poll_while_one_is_being_sent_is_no_trouble(hot: Driver) -> None:
    run = await hot.running(webhook=POLL_CANCELS)
    await hot.complete(run)
    [claimed] = (await hot.webhooks()).claimed
    await hot.get(run.tx_id, replied_to="acme")
    assert codes(await hot.webhooks(ack(*claimed, "retry", 1_000))) == ["GONE"]
    assert (await hot.webhooks()).claimed == []


# ── what SQL knows of it ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("result", ["delivered", "moved", "given_up"])
async def test_that_nothing_is_owed_any_more_is_archived(result: str, hot: Driver) -> None:
    run = await hot.running(webhook=HOOK)
    await hot.complete(run)
    [claimed] = (await hot.webhooks()).claimed
    first = await hot.claim(run.tx_id)
    assert first.is_owed
    await hot.webhooks(ack(*claimed, result))
    [answer] = (await hot.archive(stored(first))).acknowledged
    assert answer.code == "CHANGED", "what the archiver was writing says that it is owed"
    again = await hot.claim(run.tx_id)
    assert not again.is_owed
    assert ("notified_at" in again.fields) == (result == "delivered")
    assert again.fields["sequence"] == first.fields["sequence"], "the reply's bytes stay"


async def test_a_delivery_after_the_archiving_has_it_archived_again(hot: Driver) -> None:
    run = await hot.running(webhook=HOOK)
    await hot.complete(run)
    first = await hot.claim(run.tx_id)
    await hot.archive(stored(first))
    assert hot.raw.pttl(hot.key("state", tx_id=run.tx_id)) > 0
    [claimed] = (await hot.webhooks()).claimed
    await hot.webhooks(ack(*claimed))
    assert hot.raw.pttl(hot.key("state", tx_id=run.tx_id)) == -1
    assert not (await hot.claim(run.tx_id)).is_owed


# ── given up, and sent again ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_parked_delivery_waits_for_somebody_to_send_it_again(hot: Driver) -> None:
    run = await hot.running(webhook=HOOK)
    await hot.complete(run)
    [claimed] = (await hot.webhooks()).claimed
    await hot.webhooks(ack(*claimed, "parked"))
    hot.clock.advance(3_600_000)
    assert (await hot.webhooks()).claimed == []
    [owed] = await hot.owed_webhooks()
    assert owed.is_parked
    assert (await hot.resend_webhook(run.tx_id)).code == "OK"
    [(_, record)] = (await hot.webhooks()).claimed
    assert (record["attempt"], record["forced"]) == (b"0", b"1")


async def test_a_parked_delivery_is_not_kept_for_ever(hot: Driver) -> None:
    await hot.complete(await hot.running(webhook=HOOK))
    [claimed] = (await hot.webhooks()).claimed
    await hot.webhooks(ack(*claimed, "parked"))
    hot.clock.advance(hot.store.settings.webhook_parked_ms)
    assert (await hot.webhooks()).claimed == []
    assert await hot.owed_webhooks() == []


async def test_an_end_that_was_told_can_be_told_again(hot: Driver) -> None:
    run = await hot.running(webhook=HOOK)
    await hot.complete(run)
    [claimed] = (await hot.webhooks()).claimed
    await hot.webhooks(ack(*claimed))
    assert (await hot.resend_webhook(run.tx_id)).code == "OK"
    [(_, record)] = (await hot.webhooks()).claimed
    assert record["sequence"] == claimed[1]["sequence"]


# ── URLs in trouble ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_url_that_keeps_failing_is_paused_and_called_again_when_it_answers(hot: Driver) -> None:
    limits = hot.store.settings
    for failures in range(1, limits.webhook_fail_limit):
        result = await hot.report_url(URL)
        assert (result.code, result.text) == ("OK", str(failures))
    paused = await hot.report_url(URL)
    until_ms = hot.clock.now_ms() + limits.webhook_pause_ms
    assert (paused.code, paused.text) == ("PAUSED", str(until_ms))
    assert (await hot.urls_in_trouble())[URL].paused_until_ms == until_ms
    assert (await hot.report_url(URL)).code == "OK", "what was under way may still fail; it is paused already"
    hot.clock.advance(limits.webhook_pause_ms)
    assert (await hot.report_url(URL)).code == "PAUSED", "after its pause one failure is enough"
    hot.clock.advance(limits.webhook_pause_ms)
    assert (await hot.report_url(URL, "fine")).code == "CLOSED"
    assert await hot.urls_in_trouble() == {}


async def test_a_success_between_failures_begins_the_count_anew(hot: Driver) -> None:
    for _ in range(3):
        await hot.report_url(URL)
    assert (await hot.report_url(URL, "fine")).code == "OK"
    assert (await hot.report_url(URL)).text == "1"


async def test_failures_that_are_far_apart_do_not_add_up(hot: Driver) -> None:
    for _ in range(2 * hot.store.settings.webhook_fail_limit):
        result = await hot.report_url(URL)
        assert (result.code, result.text) == ("OK", "1")
        hot.clock.advance(hot.store.settings.webhook_fail_period_ms + 1)
    assert await hot.urls_in_trouble() == {}, "and what was long ago is forgotten"


async def test_a_url_that_is_gone_stays_so_until_somebody_says_otherwise(hot: Driver) -> None:
    assert (await hot.report_url(URL, "gone", "410")).code == "STOPPED"
    assert (await hot.report_url(URL, "gone", "410")).code == "OK"
    await hot.report_url(URL)
    hot.clock.advance(10**9)
    trouble = (await hot.urls_in_trouble())[URL]
    assert (trouble.is_gone, trouble.failures, trouble.comment) == (True, 1, "500")
    assert (await hot.report_url(URL, "fine")).code == "CLOSED"
    assert await hot.urls_in_trouble() == {}


# ── statuses ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_each_change_of_the_status_is_told_to_who_wants_it(hot: Driver) -> None:
    run = await hot.running(webhook='{"url":"http://client/hook","progress":"all","status":true}')
    tx_id = run.tx_id
    await hot.report_progress(run, "1")
    await hot.wait(run, "go")
    await hot.set_switch(tx_id, "go")
    run = await hot.take_one(tx_id)
    await hot.requeue(run)
    run = await hot.take_one(tx_id)
    await hot.sleep(run)
    await hot.wake(tx_id)
    run = await hot.take_one(tx_id)
    await hot.give_back(run)
    run = await hot.take_one(tx_id)
    await hot.park(run)
    await hot.retry(tx_id)
    run = await hot.take_one(tx_id)
    await hot.complete(run)
    phases: list[str] = []
    sequences: list[int] = []
    reply = await hot.webhooks()
    while reply.claimed:
        [(_, record)] = reply.claimed
        phases.append(
            record["phase"].decode() + (":" + record["progress"].decode() if b"prog" in record["kind"] else "")
        )
        sequences.append(int(record["sequence"]))
        reply = await hot.webhooks(ack(*reply.claimed[0]))
    assert phases == [
        *("running", "running:1", "waiting", "queued", "running", "queued", "running", "sleeping", "queued", "running"),
        *("queued", "running", "exception", "queued", "running", "complete"),
    ]
    assert sequences == sorted(set(sequences)), "each has a webhook-id of its own"


async def test_of_statuses_the_latest_is_enough_unless_each_report_is_wanted(hot: Driver) -> None:
    run = await hot.running(webhook='{"url":"http://client/hook","status":true}')
    await hot.sleep(run)
    [(_, record)] = (await hot.webhooks()).claimed
    assert (record["kind"], record["phase"]) == (b"transaction.status", b"sleeping")


async def test_that_one_is_parked_is_told_with_its_reason(hot: Driver) -> None:
    await hot.parked(webhook='{"url":"http://client/hook","status":true}')
    [(_, record)] = (await hot.webhooks()).claimed
    assert (record["phase"], b"it broke" in record["reason"]) == (b"exception", True)


async def test_branches_tell_nobody(hot: Driver) -> None:
    parent, branches = await hot.joining(webhook='{"url":"http://client/hook","status":true}')
    reply = await hot.webhooks()
    assert [(tx_id, record["phase"]) for tx_id, record in reply.claimed] == [(parent, b"joining")]
    await hot.webhooks(ack(*reply.claimed[0]))
    for branch in branches:
        await hot.complete(branch)
    assert [(tx_id, record["phase"]) for tx_id, record in (await hot.webhooks()).claimed] == [(parent, b"queued")]
