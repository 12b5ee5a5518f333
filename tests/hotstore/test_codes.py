"""Every answer that a script's contract names is seen: a case for each, and a check that none is missing."""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import pytest
from driver import LATER_MS, Driver

from datp.hotstore.scripts import scripts
from datp.hotstore.store import Archivable, ArchiveAck, BranchStart, Evicted, Result, Taken, WebhookAck

Case = Callable[[Driver], Awaitable[Result | str]]

CASES: Final[dict[tuple[str, str], Case]] = {}
"""(script, code) → what brings a store to where the script answers this, and gives back what it answered."""


def case(script: str, code: str) -> Callable[[Case], Case]:
    def add(brings: Case) -> Case:
        assert (script, code) not in CASES, f"{script} {code} has two cases"
        CASES[script, code] = brings
        return brings

    return add


WEBHOOK: Final = '{"url":"http://client/hook","progress":true}'


# ── runs: what the scripts that write with a token answer ────────────────────────────────────────────────────────


async def _give_back(hot: Driver, run: Taken) -> Result:
    [result] = await hot.give_back(run)
    return result


async def _renew(hot: Driver, run: Taken) -> Result:
    [result] = await hot.renew(run)
    return result


ENDS: Final[dict[str, Callable[[Driver, Taken], Awaitable[Result]]]] = {
    "complete": Driver.complete,
    "requeue": Driver.requeue,
    "sleep": Driver.sleep,
    "fork": Driver.fork,
    "park": partial(Driver.park, state=b"{}", undo_group=""),
    "give_back": _give_back,
}
"""Scripts that end a run."""

WITH_TOKEN: Final = {
    **ENDS,
    "checkpoint": Driver.checkpoint,
    "report_progress": Driver.report_progress,
    "renew_leases": _renew,
}


def _cases_of_runs(script: str) -> None:
    call = WITH_TOKEN[script]

    @case(script, "OK")
    async def ok(hot: Driver) -> Result:
        return await call(hot, await hot.running())

    @case(script, "NO_STATE")
    async def no_state(hot: Driver) -> Result:
        run = await hot.running()
        run.tx_id = hot.new_id()
        return await call(hot, run)

    @case(script, "STALE_TOKEN")
    async def stale_token(hot: Driver) -> Result:
        """A zombie: it lost its lease, and another node has taken the transaction."""
        zombie = await hot.running()
        await hot.lose_lease(zombie)
        await hot.take_one(zombie.tx_id, node="n2", alone=True)
        return await call(hot, zombie)

    if script in ENDS:

        @case(script, "ALREADY")
        async def already(hot: Driver) -> Result:
            run = await hot.running()
            first = await call(hot, run)
            again = await call(hot, run)
            assert again.text.split() == ["OK", first.text]
            return again

    if script not in ("give_back", "renew_leases"):

        @case(script, "VERDICT")
        async def verdict(hot: Driver) -> Result:
            run = await hot.running()
            assert (await hot.cancel(run.tx_id, "we changed our minds")).code == "ASKED"
            answer = await call(hot, run)
            assert answer.text == "cancelled"
            return answer


for _script in WITH_TOKEN:
    _cases_of_runs(_script)

for _script in ("complete", "end_parked"):

    @case(_script, "BAD_STATUS")
    async def bad_status(hot: Driver, script: str = _script) -> Result:
        if script == "complete":
            return await hot.complete(await hot.running(), "finished")
        return await hot.end_parked(await hot.parked(), "waiting")


@case("fork", "BRANCH_EXISTS")
async def branch_exists(hot: Driver) -> Result:
    [there] = await hot.queued()
    return await hot.fork(await hot.running(), [BranchStart(there, "b", "1", "side", 0, "{}")])


@case("report_progress", "SAME")
async def same_report(hot: Driver) -> Result:
    run = await hot.running()
    assert (await hot.report_progress(run)).code == "OK"
    return await hot.report_progress(run)


@case("sleep", "WOKEN")
async def woken_at_once(hot: Driver) -> Result:
    run = await hot.running()
    await hot.set_switch(run.tx_id, "go")
    return await hot.wait(run, "go", seen="")


# ── starting and taking ──────────────────────────────────────────────────────────────────────────────────────────


@case("enqueue", "OK")
async def started(hot: Driver) -> Result:
    return await hot.start()


@case("enqueue", "ALREADY")
async def started_twice(hot: Driver) -> Result:
    [tx_id] = await hot.queued()
    return await hot.start(tx_id)


@case("enqueue", "DUPLICATE")
async def duplicate(hot: Driver) -> Result:
    [first] = await hot.queued(external_id="e")
    answer = await hot.start(external_id="e")
    assert answer.text == first
    return answer


@case("enqueue", "IDEMPOTENCY_KEY_TAKEN")
async def idempotency_key_taken(hot: Driver) -> Result:
    first = hot.new_id()
    await hot.start(first, idempotency="k")
    assert (await hot.start(idempotency="k")).text == first
    refused = await hot.start(idempotency="k", request_hash="h2")
    assert refused.text == first and hot.raw.pttl(hot.key("idempotent", owner="acme", idempotency="k")) > 0
    return refused


async def _claim(hot: Driver, tx_id: str = "tx-1", request_hash: str = "h1") -> Result:
    async with hot.store.turn() as turn:
        reply = turn.claim_idempotency_key(0, "acme", "k", request_hash, tx_id)
    return reply.value


async def _move_key(hot: Driver, claimed_for: str, tx_id: str) -> Result:
    async with hot.store.turn() as turn:
        reply = turn.move_idempotency_key(0, "acme", "k", "h1", claimed_for, tx_id)
    return reply.value


@case("claim_idempotency_key", "OK")
async def claimed(hot: Driver) -> Result:
    return await _claim(hot)


@case("claim_idempotency_key", "DUPLICATE")
async def claimed_before(hot: Driver) -> Result:
    await _claim(hot)
    again = await _claim(hot, "tx-2")
    assert again.text == "tx-1"
    return again


@case("claim_idempotency_key", "IDEMPOTENCY_KEY_TAKEN")
async def claimed_by_another(hot: Driver) -> Result:
    await _claim(hot)
    return await _claim(hot, "tx-2", "h2")


@case("move_idempotency_key", "OK")
async def key_moved(hot: Driver) -> Result:
    await _claim(hot)
    await _move_key(hot, "tx-1", "tx-2")
    assert (await _claim(hot)).text == "tx-2"
    answer = await _move_key(hot, "tx-2", "")
    assert (await _claim(hot)).code == "OK"
    return answer


@case("move_idempotency_key", "IDEMPOTENCY_KEY_TAKEN")
async def key_not_ours(hot: Driver) -> Result:
    await _claim(hot)
    return await _move_key(hot, "tx-2", "tx-3")


@case("enqueue", "EXTERNAL_ID_TAKEN")
async def external_id_taken(hot: Driver) -> Result:
    await hot.start(external_id="e", request_hash="h1")
    return await hot.start(external_id="e", request_hash="h2")


@case("find_external_id", "OK")
async def found(hot: Driver) -> Result:
    await hot.start(external_id="e")
    return await hot.find("e")


@case("find_external_id", "NO_STATE")
async def not_found(hot: Driver) -> Result:
    return await hot.find("e")


@case("dequeue", "PARKED")
async def parked_when_taken(hot: Driver) -> str:
    [tx_id] = await hot.queued()
    hot.raw.delete(hot.key("state", tx_id=tx_id))
    assert (await hot.take()).taken == []
    return "PARKED" if hot.score("exceptions", tx_id) is not None else "nothing"


# ── from outside ─────────────────────────────────────────────────────────────────────────────────────────────────


@case("cancel", "OK")
async def cancelled(hot: Driver) -> Result:
    [tx_id] = await hot.queued()
    return await hot.cancel(tx_id)


@case("cancel", "ASKED")
async def asked_to_cancel(hot: Driver) -> Result:
    return await hot.cancel((await hot.running()).tx_id)


@case("cancel", "ALREADY")
async def cancelled_twice(hot: Driver) -> Result:
    run = await hot.running()
    await hot.cancel(run.tx_id)
    return await hot.cancel(run.tx_id)


@case("cancel", "UNDOING")
async def cancelled_while_it_undoes(hot: Driver) -> Result:
    run = await hot.running()
    await hot.requeue(run, undo_group="main", undoing="failed")
    return await hot.cancel(run.tx_id)


for _script, _call in {
    "cancel": Driver.cancel,
    "set_switch": Driver.set_switch,
    "wake": Driver.wake,
    "get_state": Driver.get,
}.items():

    @case(_script, "NO_STATE")
    async def unknown(hot: Driver, call: Callable[..., Awaitable[Result]] = _call) -> Result:
        return await call(hot, hot.new_id())

    @case(_script, "EVICTED")
    async def evicted(hot: Driver, call: Callable[..., Awaitable[Result]] = _call) -> Result:
        archived = await hot.evicted()
        answer = await call(hot, archived.tx_id)
        assert answer.text == str(archived.version)
        return answer


for _script, _call in {"cancel": Driver.cancel, "set_switch": Driver.set_switch}.items():

    @case(_script, "FINAL")
    async def final(hot: Driver, call: Callable[..., Awaitable[Result]] = _call) -> Result:
        run = await hot.running()
        await hot.complete(run, "failed")
        answer = await call(hot, run.tx_id)
        assert answer.text == "failed"
        return answer


@case("get_state", "OK")
async def got(hot: Driver) -> str:
    [tx_id] = await hot.queued()
    return "nothing" if isinstance(await hot.get(tx_id), Result) else "OK"


@case("brief_states", "OK")
async def told_in_brief(hot: Driver) -> str:
    """One that is there, and one that isn't."""
    [tx_id] = await hot.queued()
    async with hot.store.turn() as turn:
        reply = turn.brief_states([tx_id, other := hot.new_id()])
    here, gone = reply.value
    assert (here[0].decode(), here[5]) == (tx_id, b"queued")
    assert gone == [other.encode(), *[b""] * 15]
    return "OK"


@case("set_switch", "OK")
async def switch_set(hot: Driver) -> Result:
    [tx_id] = await hot.queued()
    return await hot.set_switch(tx_id)


@case("set_switch", "SAME")
async def switch_set_twice(hot: Driver) -> Result:
    [tx_id] = await hot.queued()
    await hot.set_switch(tx_id)
    return await hot.set_switch(tx_id)


@case("set_switch", "WOKEN")
async def switch_wakes(hot: Driver) -> Result:
    run = await hot.running()
    await hot.wait(run, "go")
    return await hot.set_switch(run.tx_id, "go")


@case("set_switch", "TOO_MANY_SWITCHES")
async def too_many_switches(hot: Driver) -> Result:
    [tx_id] = await hot.queued()
    for number in range(hot.store.settings.switches_max):
        assert (await hot.set_switch(tx_id, f"s{number}")).code == "OK"
    return await hot.set_switch(tx_id, "one more")


@case("wake", "WOKEN")
async def woken_by_an_operator(hot: Driver) -> Result:
    run = await hot.running()
    await hot.sleep(run)
    return await hot.wake(run.tx_id)


@case("wake", "NOT_ASLEEP")
async def not_asleep(hot: Driver) -> Result:
    [tx_id] = await hot.queued()
    return await hot.wake(tx_id)


@case("retry", "OK")
async def retried(hot: Driver) -> Result:
    return await hot.retry(await hot.parked())


@case("retry", "BROKEN")
async def retried_broken(hot: Driver) -> Result:
    tx_id = await hot.parked()
    hot.raw.hdel(hot.key("state", tx_id=tx_id), "owner")
    answer = await hot.retry(tx_id)
    assert answer.text == "owner"
    return answer


@case("end_parked", "OK")
async def parked_ended(hot: Driver) -> Result:
    return await hot.end_parked(await hot.parked())


for _script, _call in {"retry": Driver.retry, "end_parked": Driver.end_parked}.items():

    @case(_script, "NO_STATE")
    async def nothing_parked(hot: Driver, call: Callable[..., Awaitable[Result]] = _call) -> Result:
        return await call(hot, hot.new_id())

    @case(_script, "NOT_PARKED")
    async def not_parked(hot: Driver, call: Callable[..., Awaitable[Result]] = _call) -> Result:
        [tx_id] = await hot.queued()
        return await call(hot, tx_id)


# ── sweeping ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _only(happened: list[tuple[str, str, str]], tx_id: str) -> str:
    [what] = [what for one, what, _ in happened if one == tx_id]
    return what


@case("reap", "REQUEUED")
async def lease_lost(hot: Driver) -> str:
    run = await hot.running()
    return _only(await hot.lose_lease(run), run.tx_id)


@case("reap", "PARKED")
async def lease_lost_too_often(hot: Driver) -> str:
    [tx_id] = await hot.queued()
    for _ in range(hot.store.settings.attempts_max):
        assert _only(await hot.lose_lease(await hot.take_one(tx_id, alone=True)), tx_id) == "REQUEUED"
    return _only(await hot.lose_lease(await hot.take_one(tx_id, alone=True)), tx_id)


@case("reap", "GRACE")
async def grace(hot: Driver) -> str:
    await hot.running()
    hot.clock.advance(hot.store.settings.lease_ms)
    return _only(await hot.reaped(), "")


@case("reap", "OK")
async def deadline_passed(hot: Driver) -> str:
    [tx_id] = await hot.queued(deadline_in_ms=100)
    hot.clock.advance(100)
    return _only(await hot.reaped(), tx_id)


@case("reap", "ASKED")
async def deadline_of_a_run(hot: Driver) -> str:
    run = await hot.running(deadline_in_ms=100)
    hot.clock.advance(100)
    return _only(await hot.reaped(), run.tx_id)


@case("reap", "FENCED")
async def fenced(hot: Driver) -> str:
    run = await hot.running()
    await hot.cancel(run.tx_id)
    hot.clock.advance(hot.store.settings.cancel_grace_ms)
    return _only(await hot.reaped(), run.tx_id)


@case("wake_due", "WOKEN")
async def woken_in_time(hot: Driver) -> str:
    run = await hot.running()
    await hot.sleep(run, 100)
    hot.clock.advance(100)
    return _only(await hot.woken(), run.tx_id)


@case("wake_due", "TIMEOUT")
async def woken_by_its_deadline(hot: Driver) -> str:
    run = await hot.running(deadline_in_ms=100)
    await hot.sleep(run, LATER_MS)
    hot.clock.advance(100)
    return _only(await hot.woken(), run.tx_id)


@case("wake_due", "EVICTED")
async def due_in_sql(hot: Driver) -> str:
    archived = await hot.evicted()
    hot.clock.advance(LATER_MS)
    return _only(await hot.woken(), archived.tx_id)


@case("wake_due", "PARKED")
async def asleep_without_state(hot: Driver) -> str:
    run = await hot.running()
    await hot.sleep(run, 100)
    hot.raw.delete(hot.key("state", tx_id=run.tx_id))
    hot.raw.zrem(hot.key("to_archive"), run.tx_id)
    hot.clock.advance(100)
    return _only(await hot.woken(), run.tx_id)


@case("wake_due", "AWAKE")
async def awake_already(hot: Driver) -> str:
    [tx_id] = await hot.queued()
    hot.raw.zadd(hot.key("sleeping"), {tx_id: 1})
    return _only(await hot.woken(), tx_id)


# ── to SQL and back ──────────────────────────────────────────────────────────────────────────────────────────────


@case("next_to_archive", "OK")
async def archived(hot: Driver) -> Result:
    run = await hot.running()
    await hot.complete(run)
    archivable = await hot.claim(run.tx_id)
    return (await hot.archive(ArchiveAck(run.tx_id, archivable.version, 0))).acknowledged[0]


@case("next_to_archive", "EVICTED")
async def evicted_when_archived(hot: Driver) -> Result:
    run = await hot.running()
    await hot.sleep(run, LATER_MS)
    archivable = await hot.claim(run.tx_id)
    return (await hot.archive(ArchiveAck(run.tx_id, archivable.version, 1))).acknowledged[0]


@case("next_to_archive", "CHANGED")
async def changed_while_archived(hot: Driver) -> Result:
    run = await hot.running()
    await hot.sleep(run, LATER_MS)
    archivable = await hot.claim(run.tx_id)
    await hot.set_switch(run.tx_id)
    return (await hot.archive(ArchiveAck(run.tx_id, archivable.version, 1))).acknowledged[0]


@case("next_to_archive", "GONE")
async def gone_while_archived(hot: Driver) -> Result:
    return (await hot.archive(ArchiveAck(hot.new_id(), 1, 0))).acknowledged[0]


@case("restore", "OK")
async def restored(hot: Driver) -> Result:
    return await hot.restore(await hot.evicted())


@case("restore", "PRESENT")
async def restored_twice(hot: Driver) -> Result:
    archived = await hot.evicted()
    await hot.restore(archived)
    return await hot.restore(archived)


@case("restore", "UNKNOWN")
async def never_evicted(hot: Driver) -> Result:
    archived = await hot.evicted()
    archived.tx_id = hot.new_id()
    return await hot.restore(archived)


@case("restore", "NEWER")
async def restored_from_a_lagging_replica(hot: Driver) -> Result:
    archived = await hot.evicted()
    return await hot.restore(archived, version=archived.version - 1)


@case("restore", "OLDER")
async def sql_is_ahead(hot: Driver) -> Result:
    archived = await hot.evicted()
    return await hot.restore(archived, version=archived.version + 1)


@case("restore", "WOKEN")
async def restored_and_woken(hot: Driver) -> Result:
    return await hot.restore(await hot.evicted(), "wake")


@case("restore", "TIMEOUT")
async def restored_after_its_deadline(hot: Driver) -> Result:
    archived = await hot.evicted(deadline_in_ms=LATER_MS, wake_in_ms=-1, switch="go")
    hot.clock.advance(LATER_MS)
    return await hot.restore(archived, "due")


@case("restore", "SAME")
async def restored_for_the_switch_it_has(hot: Driver) -> Result:
    run = await hot.running()
    await hot.set_switch(run.tx_id, "s", "1")
    await hot.sleep(run, LATER_MS)
    return await hot.restore(await hot.evict(run.tx_id), "switch", "s", "1")


@case("restore", "TOO_MANY_SWITCHES")
async def restored_for_one_switch_too_many(hot: Driver) -> Result:
    run = await hot.running()
    for number in range(hot.store.settings.switches_max):
        await hot.set_switch(run.tx_id, f"s{number}")
    await hot.sleep(run, LATER_MS)
    return await hot.restore(await hot.evict(run.tx_id), "switch", "one more", "1")


@case("restore", "UNDOING")
async def restored_to_be_cancelled_while_it_undoes(hot: Driver) -> Result:
    run = await hot.running()
    await hot.sleep(run, LATER_MS, undo_group="main", undoing="failed")
    return await hot.restore(await hot.evict(run.tx_id), "cancel", "enough")


@case("adopt", "OK")
async def adopted(hot: Driver) -> Result:
    [tx_id] = await hot.queued()
    copy = hot.copy(tx_id)
    return await hot.adopt(copy, copy.version + 1)


@case("adopt", "OLDER")
async def adopted_too_late(hot: Driver) -> Result:
    [tx_id] = await hot.queued()
    copy = hot.copy(tx_id)
    return await hot.adopt(copy, copy.version)


# ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────────────


@case("next_webhooks", "OK")
async def delivered(hot: Driver) -> Result:
    await hot.complete(await hot.running(webhook=WEBHOOK))
    [(tx_id, record)] = (await hot.webhooks()).claimed
    return (await hot.webhooks(WebhookAck(tx_id, record["claim"].decode(), "delivered", 0, ""))).acknowledged[0]


@case("next_webhooks", "REPLACED")
async def replaced_while_it_was_sent(hot: Driver) -> Result:
    run = await hot.running(webhook=WEBHOOK)
    await hot.report_progress(run)
    [(tx_id, record)] = (await hot.webhooks()).claimed
    await hot.complete(run)
    return (await hot.webhooks(WebhookAck(tx_id, record["claim"].decode(), "delivered", 0, ""))).acknowledged[0]


@case("next_webhooks", "STALE")
async def sent_under_a_claim_that_ran_out(hot: Driver) -> Result:
    await hot.complete(await hot.running(webhook=WEBHOOK))
    [(tx_id, record)] = (await hot.webhooks()).claimed
    hot.clock.advance(hot.store.settings.webhook_claim_ms)
    await hot.webhooks()
    return (await hot.webhooks(WebhookAck(tx_id, record["claim"].decode(), "delivered", 0, ""))).acknowledged[0]


@case("resend_webhook", "OK")
async def told_again(hot: Driver) -> Result:
    run = await hot.running(webhook=WEBHOOK)
    await hot.complete(run)
    return await hot.resend_webhook(run.tx_id)


@case("resend_webhook", "SENDING")
async def told_again_while_it_is_told(hot: Driver) -> Result:
    run = await hot.running(webhook=WEBHOOK)
    await hot.complete(run)
    await hot.webhooks()
    return await hot.resend_webhook(run.tx_id)


@case("resend_webhook", "NO_STATE")
async def told_again_of_nothing(hot: Driver) -> Result:
    return await hot.resend_webhook(hot.new_id())


@case("resend_webhook", "NOT_ENDED")
async def told_again_before_the_end(hot: Driver) -> Result:
    return await hot.resend_webhook((await hot.running(webhook=WEBHOOK)).tx_id)


@case("resend_webhook", "NO_WEBHOOK")
async def told_again_who_never_asked(hot: Driver) -> Result:
    run = await hot.running()
    await hot.complete(run)
    return await hot.resend_webhook(run.tx_id)


@case("report_urls", "OK")
async def one_failure(hot: Driver) -> Result:
    return await hot.report_url("http://client/hook")


@case("report_urls", "PAUSED")
async def one_failure_too_many(hot: Driver) -> Result:
    for _ in range(hot.store.settings.webhook_fail_limit - 1):
        await hot.report_url("http://client/hook")
    return await hot.report_url("http://client/hook")


@case("report_urls", "STOPPED")
async def a_receiver_that_wants_no_more(hot: Driver) -> Result:
    return await hot.report_url("http://client/hook", "gone")


@case("report_urls", "CLOSED")
async def a_receiver_that_answers_again(hot: Driver) -> Result:
    await hot.report_url("http://client/hook", "gone")
    return await hot.report_url("http://client/hook", "fine")


@case("next_webhooks", "GONE")
async def polled_while_it_was_sent(hot: Driver) -> Result:
    run = await hot.running(webhook='{"url":"http://client/hook","pollCancels":true}')
    await hot.complete(run)
    [(tx_id, record)] = (await hot.webhooks()).claimed
    await hot.get(tx_id, replied_to="acme")
    return (await hot.webhooks(WebhookAck(tx_id, record["claim"].decode(), "delivered", 0, ""))).acknowledged[0]


# ── definitions, nodes, counts ───────────────────────────────────────────────────────────────────────────────────


async def _save(hot: Driver, version: str, definition: str, activate: int) -> Result:
    async with hot.store.turn() as turn:
        reply = turn.save_pipelines([("p", version, definition, activate)])
    return reply.value[0]


@case("enqueue", "FULL")
async def started_when_memory_is_full(hot: Driver) -> Result:
    await hot.tell_memory(is_full=True)
    return await hot.start()


async def _refused_by_sql(hot: Driver, tx_id: str, version: int) -> Result:
    return await hot._result("set_aside", [(tx_id, version, "too large")])


@case("set_aside", "OK")
async def kept_from_sql(hot: Driver) -> Result:
    run = await hot.running()
    await hot.checkpoint(run)
    archivable = await hot.claim(run.tx_id)
    result = await _refused_by_sql(hot, run.tx_id, archivable.version)
    assert hot.score("to_archive", run.tx_id) == int(result.text) > hot.clock.now_ms()
    return result


@case("set_aside", "CHANGED")
async def kept_from_sql_but_changed(hot: Driver) -> Result:
    run = await hot.running()
    return await _refused_by_sql(hot, run.tx_id, 1)


@case("set_aside", "NO_STATE")
async def kept_from_sql_but_gone(hot: Driver) -> Result:
    return await _refused_by_sql(hot, hot.new_id(), 1)


@case("park_lost", "OK")
async def evicted_and_lost(hot: Driver) -> Result:
    archived = await hot.evicted()
    return await hot.park_lost(archived.tx_id, archived.version)


@case("park_lost", "CHANGED")
async def lost_but_evicted_anew(hot: Driver) -> Result:
    archived = await hot.evicted()
    return await hot.park_lost(archived.tx_id, archived.version - 1)


async def _evict(hot: Driver, tx_id: str, version: int, *, due: int = 0, external_id: str = "") -> Result:
    return await hot._result("evict", [Evicted(tx_id, version, due, "acme", external_id, "hash")])


async def _read_state(hot: Driver, tx_id: str) -> Archivable | Result:
    async with hot.store.turn() as turn:
        reply = turn.read_states([tx_id])
    return reply.value[0]


@case("read_states", "OK")
async def read_as_sql_keeps_it(hot: Driver) -> Result:
    """The same as an archiver is given."""
    run = await hot.running()
    assert (await hot.sleep(run, 1_000)).code == "OK"
    assert await _read_state(hot, run.tx_id) == await hot.claim(run.tx_id)
    return Result("OK")


@case("read_states", "OTHER")
async def read_as_sql_keeps_it_but_of_another_level(hot: Driver) -> Result:
    run = await hot.running(durability="snapshot")
    async with hot.store.turn() as turn:
        reply = turn.read_states([run.tx_id], durability="journal")
    found = reply.value[0]
    assert isinstance(found, Result) and found.text == "snapshot"
    return found


@case("read_states", "NO_STATE")
async def read_as_sql_keeps_it_but_gone(hot: Driver) -> Result:
    found = await _read_state(hot, hot.new_id())
    assert isinstance(found, Result)
    return found


@case("evict", "OK")
async def left_in_sql(hot: Driver) -> Result:
    archived = await hot.evicted(external_id="e1")
    hot.raw.flushall()
    await hot.store.open(create=True, held=True)
    result = await _evict(hot, archived.tx_id, archived.version, external_id="e1")
    assert await hot.find("e1") == Result("OK", (archived.tx_id.encode(),))
    assert (await hot.restore(archived, "wake")).code == "WOKEN"
    return result


@case("evict", "PRESENT")
async def left_in_sql_but_here(hot: Driver) -> Result:
    archived = await hot.evicted()
    result = await _evict(hot, archived.tx_id, archived.version)
    assert result.text == str(archived.version)
    run = await hot.running()
    assert (await _evict(hot, run.tx_id, 1)).code == "PRESENT"
    return result


@case("join_branch", "OK")
async def branch_joined(hot: Driver) -> Result:
    parent, [one, _] = await hot.joining()
    await hot.uncounted(parent, one)
    return await hot.join_branch(parent, one.tx_id)


@case("join_branch", "ALREADY")
async def branch_joined_twice(hot: Driver) -> Result:
    parent, [one, _] = await hot.joining()
    await hot.complete(one)
    return await hot.join_branch(parent, one.tx_id)


@case("join_branch", "NOT_JOINING")
async def branch_joined_too_late(hot: Driver) -> Result:
    run = await hot.running()
    return await hot.join_branch(run.tx_id, hot.new_id())


@case("keep_external_id", "OK")
async def external_id_kept(hot: Driver) -> Result:
    ended = hot.new_id()
    answer = await hot.keep_external_id(ended, "e", keep_for_ms=60_000)
    assert (await hot.find("e")).text == ended
    assert 0 < hot.raw.pttl(hot.key("external_id", owner="acme", external_id="e")) <= 60_000
    return answer


async def _load(hot: Driver, pipeline: str, version: str) -> Result:
    async with hot.store.turn() as turn:
        reply = turn.load_pipelines([(pipeline, version)])
    return reply.value[0]


@case("save_pipelines", "OK")
async def saved(hot: Driver) -> Result:
    return await _save(hot, "1", "{}", 1)


@case("save_pipelines", "NO_VERSION")
async def activated_unsaved(hot: Driver) -> Result:
    return await _save(hot, "1", "", 1)


@case("save_pipelines", "IN_SQL")
async def saved_though_sql_keeps_them(hot: Driver) -> Result:
    async with hot.store.turn() as turn:
        turn.save_pipelines([], change=7)
    return await _save(hot, "1", "{}", 1)


async def _deactivate(hot: Driver) -> Result:
    async with hot.store.turn() as turn:
        reply = turn.deactivate_pipelines(["p"])
    return reply.value[0]


@case("deactivate_pipelines", "OK")
async def deactivated(hot: Driver) -> Result:
    await _save(hot, "1", "{}", 1)
    result = await _deactivate(hot)
    assert (await _load(hot, "p", "")).code == "NO_PIPELINE"
    assert (await _load(hot, "p", "1")).code == "OK"
    return result


@case("deactivate_pipelines", "NO_PIPELINE")
async def deactivated_unknown(hot: Driver) -> Result:
    return await _deactivate(hot)


@case("deactivate_pipelines", "IN_SQL")
async def deactivated_though_sql_keeps_them(hot: Driver) -> Result:
    async with hot.store.turn() as turn:
        turn.save_pipelines([], change=7)
    return await _deactivate(hot)


async def _delete(hot: Driver, version: str) -> Result:
    async with hot.store.turn() as turn:
        reply = turn.delete_versions([("p", version)])
    return reply.value[0]


@case("delete_versions", "OK")
async def deleted_version(hot: Driver) -> Result:
    await _save(hot, "1", "{}", 0)
    await _save(hot, "2", "{}", 0)
    assert await _delete(hot, "1") == Result("OK", (0,))
    result = await _delete(hot, "2")
    assert result == Result("OK", (1,))
    assert not hot.raw.exists(hot.key("pipeline", pipeline="p"))
    return result


@case("delete_versions", "NO_VERSION")
async def deleted_unknown_version(hot: Driver) -> Result:
    return await _delete(hot, "1")


@case("delete_versions", "ACTIVE")
async def deleted_active_version(hot: Driver) -> Result:
    await _save(hot, "1", "{}", 1)
    return await _delete(hot, "1")


@case("delete_versions", "IN_SQL")
async def deleted_though_sql_keeps_them(hot: Driver) -> Result:
    async with hot.store.turn() as turn:
        turn.save_pipelines([], change=7)
    return await _delete(hot, "1")


@case("list_versions", "OK")
async def listed_versions(hot: Driver) -> Result:
    await _save(hot, "1", "{}", 1)
    await _save(hot, "2", "{}", 0)
    async with hot.store.turn() as turn:
        reply = turn.list_versions(["p", "unknown"])
    [versions, none] = reply.value
    assert (sorted(versions), none) == (["1", "2"], [])
    return Result("OK")


@case("load_pipelines", "OK")
async def loaded(hot: Driver) -> Result:
    await _save(hot, "1", "{}", 1)
    return await _load(hot, "p", "")


@case("load_pipelines", "NO_PIPELINE")
async def loaded_unknown(hot: Driver) -> Result:
    await _save(hot, "1", "{}", 0)
    return await _load(hot, "p", "")


@case("load_pipelines", "NO_VERSION")
async def loaded_unknown_version(hot: Driver) -> Result:
    await _save(hot, "1", "{}", 1)
    return await _load(hot, "p", "2")


async def _save_group(hot: Driver) -> Result:
    async with hot.store.turn() as turn:
        reply = turn.save_node_groups([("main", "{}", 1)])
    return reply.value[0]


@case("save_node_groups", "OK")
async def group_saved(hot: Driver) -> Result:
    return await _save_group(hot)


@case("save_node_groups", "SAME")
async def group_saved_twice(hot: Driver) -> Result:
    await _save_group(hot)
    return await _save_group(hot)


@case("save_node_groups", "IN_SQL")
async def group_saved_though_sql_keeps_them(hot: Driver) -> Result:
    async with hot.store.turn() as turn:
        turn.save_node_groups([], change=7)
    return await _save_group(hot)


async def _send_admin(hot: Driver, count: int) -> Result:
    async with hot.store.turn() as turn:
        reply = turn.send_admin([("n1", f'{{"id":"e{number}"}}') for number in range(count)])
    return reply.value[-1]


@case("send_admin", "OK")
async def event_sent(hot: Driver) -> Result:
    return await _send_admin(hot, 1)


@case("send_admin", "FULL")
async def event_sent_to_a_deaf_node(hot: Driver) -> Result:
    return await _send_admin(hot, hot.store.settings.admin_queue_max + 1)


@case("answer_admin", "OK")
async def event_answered(hot: Driver) -> Result:
    await _send_admin(hot, 1)
    async with hot.store.turn() as turn:
        reply = turn.answer_admin(hot.store.home("n1"), "n1", [('{"id":"e0"}', "e0", "{}")])
    return reply.value[0]


async def _flush(hot: Driver) -> Result:
    async with hot.store.turn() as turn:
        reply = turn.flush_counts("p1", 1, [("replies", 3)])
    return reply.value[0]


@case("flush_counts", "OK")
async def flushed(hot: Driver) -> Result:
    return await _flush(hot)


@case("flush_counts", "ALREADY")
async def flushed_twice(hot: Driver) -> Result:
    await _flush(hot)
    return await _flush(hot)


async def _raise(hot: Driver, *subjects: str) -> Result:
    async with hot.store.turn() as turn:
        reply = turn.raise_events([("clock-skew", subject, "it is late") for subject in subjects])
    return reply.value[-1]


@case("raise_events", "OK")
async def raised(hot: Driver) -> Result:
    return await _raise(hot, "n1")


@case("raise_events", "FULL")
async def raised_too_many(hot: Driver) -> Result:
    return await _raise(hot, *(f"n{number}" for number in range(1001)))


async def _move(hot: Driver, event_id: str, times: int) -> Result:
    async with hot.store.turn() as turn:
        reply = turn.next_events(hot.store.home("clock-skew"), 10, [(event_id, times)])
    return reply.value[0][0]


@case("next_events", "OK")
async def moved(hot: Driver) -> Result:
    return await _move(hot, (await _raise(hot, "n1")).text, 1)


@case("next_events", "AGAIN")
async def moved_while_it_happened_again(hot: Driver) -> Result:
    return await _move(hot, (await _raise(hot, "n1", "n1")).text, 1)


@case("next_events", "GONE")
async def moved_before(hot: Driver) -> Result:
    return await _move(hot, "0" * 16, 1)


# ── the claims ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("script", "code"), [pytest.param(*answer, id=" ".join(answer)) for answer in CASES])
async def test_a_script_gives_the_answer(script: str, code: str, hot: Driver) -> None:
    answer = await CASES[script, code](hot)
    assert (answer.code if isinstance(answer, Result) else answer) == code


def test_every_answer_of_every_contract_has_a_case() -> None:
    in_contracts = set()
    for name, script in scripts().items():
        returned = re.findall(r"^([A-Z][A-Z_]+)\b", script.contract.returns, re.MULTILINE)
        in_contracts |= {(name, code) for code in (*script.contract.refuses, *returned)}
    missing = [f'@case("{name}", "{code}")' for name, code in sorted(in_contracts - set(CASES))]
    assert not missing, (
        "an answer of a script is seen by no test. Add to this file a function for each of these, which brings a store"
        f" to where the script answers so, and returns what it answered: {', '.join(missing)}"
    )
    needless = sorted(set(CASES) - in_contracts)
    assert not needless, f"these cases are about answers that no contract names (returns, refuses): {needless}"
