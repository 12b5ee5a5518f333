"""With a database: deliveries move there, what became of each is known, and each owner has keys."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from webhooks.conftest import sender_of, teller
from webhooks.receivers import OK, closes, never, receiver, status
from webhooks.test_sender import nothing_is_owed
from worker.support import Engine, until

from datp.api.transactions import StartRequest
from datp.archive.deliveries import Deliveries, DeliveryRow
from datp.archive.webhook_keys import WebhookKey, WebhookKeys
from datp.errors import Conflict, DatabaseUnreachable, NotFound, RowsRefused
from datp.model.signature import verify
from datp.webhooks.desk import DeliveryWithAttempts, WebhookDesk
from datp.webhooks.keys import OwnerKeys
from datp.worker.node import Node

ROLES = "worker,wakeup,archive,webhooks"


def desk_of(eng: Engine) -> WebhookDesk:
    return WebhookDesk(eng.store, eng.archive)


async def delivery(eng: Engine, id_: str, state: str) -> DeliveryWithAttempts:
    """The delivery, once it is in this state."""
    desk = desk_of(eng)

    async def there() -> DeliveryWithAttempts | None:
        with contextlib.suppress(NotFound):
            found = await desk.show(id_)
            return found if found.delivery.state == state else None
        return None

    found = await until(there, f"{id_} is {state}")
    assert found is not None
    return found


async def test_every_try_is_kept_with_what_the_receiver_said(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    await teller(eng, ROLES)
    async with receiver(status(500, body=b"disk full"), closes, status(202, body=b"thanks")) as there:
        await eng.start("echo", metadata={"webhook": there.url()})
        requests = await there.heard(3)
        found = await delivery(eng, requests[0].headers["webhook-id"], "delivered")
    assert [(attempt.status, attempt.says) for attempt in found.attempts] == [
        (500, "disk full"),
        (None, "the receiver closed the connection without an answer"),
        (202, "thanks"),
    ]
    assert all(0 <= attempt.latency_ms < 10_000 for attempt in found.attempts)
    assert (found.delivery.tries, found.delivery.owner) == (3, "acme")


async def test_after_its_third_failure_a_delivery_moves_to_sql_and_is_tried_from_there(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    await teller(eng, ROLES, webhook_retries="10ms,10ms,300ms,10ms")
    async with receiver(*[status(500)] * 4, OK) as there:
        await eng.start("echo", metadata={"webhook": there.url()})
        [request, *_] = await there.heard(3)
        id_ = request.headers["webhook-id"]
        await delivery(eng, id_, "waiting")
        await nothing_is_owed(eng)
        requests = await there.heard(5)
        found = await delivery(eng, id_, "delivered")
    assert len({one.body for one in requests}) == 1
    assert len(found.attempts) == 5


async def test_when_all_tries_are_used_up_it_is_parked_in_sight_and_can_be_sent_again(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    node = await teller(eng, ROLES, webhook_retries="10ms,10ms,10ms")
    async with receiver(*[status(503)] * 4, OK) as there:
        await eng.start("echo", metadata={"webhook": there.url()})
        [request, *_] = await there.heard(4)
        id_ = request.headers["webhook-id"]
        await delivery(eng, id_, "parked")
        [event] = [one for one in await node.events.list() if one.code == "webhook-given-up"]
        assert (event.subject, id_ in event.text) == (there.url(), True)
        desk = desk_of(eng)
        with pytest.raises(NotFound):
            await desk.resend(id_, "somebody else")
        assert await desk.resend(id_, "acme") == "OK"
        requests = await there.heard(5)
        await delivery(eng, id_, "delivered")
    assert requests[-1].headers["webhook-id"] == id_
    assert requests[-1].body == request.body


async def test_an_end_that_was_delivered_can_be_sent_again_though_it_has_left_memory(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    await teller(eng, ROLES, state_ttl_ms=1)
    async with receiver() as there:
        tx_id = await eng.start("echo", {"n": 1}, metadata={"webhook": there.url()})
        [first] = await there.heard()
        id_ = first.headers["webhook-id"]
        await delivery(eng, id_, "delivered")

        async def left() -> bool:
            return (await eng.statuses([tx_id])) == ["gone"]

        await until(left, "it has left memory")
        await desk_of(eng).resend(id_)
        second = (await there.heard(2))[1]
    assert (second.body, second.headers["webhook-id"]) == (first.body, id_)


async def test_what_was_told_is_archived_as_told(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    assert eng.archive is not None
    await eng.pipeline("echo", "util/echo")
    await teller(eng, ROLES, archive_delay_ms=0)
    async with receiver(status(500), status(500), OK) as there:
        tx_id = await eng.start("echo", metadata={"webhook": there.url()})
        await there.heard(3)

        async def is_settled() -> bool:
            assert eng.archive is not None
            found = await eng.archive.database.read_states([tx_id])
            return tx_id in found and not found[tx_id].reply_owed and bool(found[tx_id].fields.get("notified_at"))

        await until(is_settled, "SQL knows that it was told")
    assert await eng.archive.database.owed_replies() == []


async def test_a_report_is_not_sent_again(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("reports", {"step": "util/progress", "with": {"progressReport": 1}})
    await teller(eng, ROLES)
    async with receiver() as there:
        await eng.start("reports", metadata={"webhook": there.url(), "progressReports": "all"})
        requests = await there.heard(2)
        report = next(one for one in requests if one.said[0] == "progress")
        await delivery(eng, report.headers["webhook-id"], "delivered")
        with pytest.raises(Conflict, match="report"):
            await desk_of(eng).resend(report.headers["webhook-id"])


# ── while SQL is away ────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def sql_is_away(node: Node) -> Iterator[None]:
    """The sender's database can't be reached."""
    sender = sender_of(node)
    deliveries = sender._deliveries
    assert deliveries is not None and sender.ledger is not None

    class Away(Deliveries):
        def __init__(self) -> None:
            """Nothing is there."""

        def __getattribute__(self, name: str) -> object:
            raise DatabaseUnreachable("it was stopped, on purpose")

    sender._deliveries = sender.ledger._deliveries = Away()
    try:
        yield
    finally:
        sender._deliveries = sender.ledger._deliveries = deliveries


async def test_while_sql_is_away_deliveries_stay_in_the_store_and_go_on(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    node = await teller(eng, ROLES, webhook_retries="10ms,10ms,10ms,10ms,10ms,10ms,10ms")
    async with receiver(*[status(500)] * 5, OK) as there:
        with sql_is_away(node):
            await desk_of(eng).keys("acme")
            await eng.start("echo", metadata={"webhook": there.url()})
            [request, *_] = await there.heard(6)
            await nothing_is_owed(eng)
        found = await delivery(eng, request.headers["webhook-id"], "delivered")
    assert found.attempts[-1].status == 200


async def test_keys_that_are_known_sign_while_sql_is_away(eng_with_sql: Engine) -> None:
    assert eng_with_sql.archive is not None
    from datp.webhooks import keys as keys_module

    stored = WebhookKeys(eng_with_sql.archive.database)
    owner_keys = OwnerKeys(stored, "")
    known = await owner_keys.of("acme", 1)

    async def away(owner: str, now_ms: int) -> object:
        raise DatabaseUnreachable("on purpose")

    stored.signing = away  # type: ignore[method-assign,assignment]
    owner_keys._known["acme"] = (0.0, known)
    assert keys_module.KNOWN_FOR_S > 0
    assert await owner_keys.of("acme", 1) == known
    with pytest.raises(DatabaseUnreachable):
        await owner_keys.of("zoe", 1)


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_each_owner_has_a_key_of_its_own(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    await teller(eng, ROLES)
    async with receiver() as there:
        await eng.start("echo", metadata={"webhook": there.url()})
        [request] = await there.heard()
    desk = desk_of(eng)
    [own], [other] = await desk.keys("acme"), await desk.keys("zoe")
    Webhook(own.verify_with).verify(request.body, request.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(other.verify_with).verify(request.body, request.headers)


async def test_while_keys_are_changed_a_receiver_may_know_either(
    eng_with_sql: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    eng = eng_with_sql
    monkeypatch.setattr("datp.webhooks.keys.KNOWN_FOR_S", 0.0)
    await eng.pipeline("echo", "util/echo")
    await teller(eng, ROLES)
    desk = desk_of(eng)
    [old] = await desk.keys("acme")
    new = await desk.rotate("acme")
    public = await desk.rotate("acme", "v1a")
    async with receiver() as there:
        await eng.start("echo", metadata={"webhook": there.url()})
        [during] = await there.heard()
        for key in (old, new):
            Webhook(key.verify_with).verify(during.body, during.headers)
        timestamp = int(during.headers["webhook-timestamp"])
        verify(during.headers, during.body, public.verify_with, now_s=timestamp)
        assert public.verify_with.startswith("whpk_")

        newest = await desk.rotate("acme", grace_ms=0)
        await asyncio.sleep(0)
        await eng.start("echo", metadata={"webhook": there.url()})
        after = (await there.heard(2))[1]
    Webhook(newest.verify_with).verify(after.body, after.headers)
    for key in (old, new):
        with pytest.raises(WebhookVerificationError):
            Webhook(key.verify_with).verify(after.body, after.headers)


# ── the breaker ──────────────────────────────────────────────────────────────────────────────────────────────────


async def paused_url(eng: Engine, url: str) -> None:
    desk = desk_of(eng)

    async def paused() -> bool:
        return any(one.url == url and one.paused_until for one in await desk.urls())

    await until(paused, "the URL is paused")


async def test_while_a_url_is_paused_no_sender_calls_it_and_others_are_called(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    limits = {"webhook_fail_limit": 3, "webhook_pause_ms": 60_000, "webhook_retries": "10ms,10ms,10ms,1s"}
    nodes = [await teller(eng, ROLES, **limits) for _ in range(2)]
    async with receiver(status(500)) as there, receiver() as other:
        await eng.start("echo", metadata={"webhook": there.url()})
        await paused_url(eng, there.url())
        urls = [*[there.url()] * 20, other.url()]
        await eng.transactions.start_batch("acme", [StartRequest("echo", metadata={"webhook": url}) for url in urls])
        await other.heard()
        assert len(there.requests) <= 3 + len(nodes), "one that did not know yet may call once more"
        await _let_go(eng)


async def _let_go(eng: Engine) -> None:
    """The nodes stop; what is owed is not waited for."""
    for node in list(eng.nodes):
        await node.stop()
        eng.nodes.remove(node)


async def test_a_paused_url_that_answers_again_gets_all_that_is_owed_and_operators_are_told(
    eng_with_sql: Engine,
) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    limits = {"webhook_fail_limit": 3, "webhook_pause_ms": 300, "webhook_retries": "10ms,10ms,10ms,1s,1s,1s"}
    node = await teller(eng, ROLES, **limits)
    desk = desk_of(eng)
    async with receiver(*[status(500)] * 3, OK) as there:
        await eng.start("echo", metadata={"webhook": there.url()})
        await paused_url(eng, there.url())
        asked = [StartRequest("echo", metadata={"webhook": there.url()})] * 20
        await eng.transactions.start_batch("acme", asked)
        await there.heard(3 + 1 + 20)

        async def closed() -> bool:
            return not await desk.urls()

        await until(closed, "nothing is held against it any more")
        await nothing_is_owed(eng)

    async def told() -> bool:
        return {"webhook-paused", "webhook-resumed"} <= {one.code for one in await node.events.list()}

    await until(told, "operators are told of both")


async def test_410_stops_a_url_until_somebody_says_otherwise(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    await teller(eng, ROLES)
    desk = desk_of(eng)
    async with receiver(status(410), OK) as there:
        await eng.start("echo", metadata={"webhook": there.url()})
        [first] = await there.heard()
        await delivery(eng, first.headers["webhook-id"], "parked")

        async def stopped() -> bool:
            return any(one.gone for one in await desk.urls())

        await until(stopped, "the URL is stopped")
        second = await eng.start("echo", metadata={"webhook": there.url()})
        reply = await eng.final(second)
        found = await delivery(eng, f"{second}-{reply.sequence}", "parked")
        assert len(there.requests) == 1, "nothing more is sent there"
        assert "wants no more" in found.delivery.says
        assert await desk.resume(there.url())
        assert not await desk.resume(there.url())
        await desk.resend(found.delivery.id)
        await there.heard(2)
        await delivery(eng, found.delivery.id, "delivered")


async def test_sent_again_even_a_paused_url_is_called(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    await teller(eng, ROLES)
    desk = desk_of(eng)
    async with receiver(status(410), OK) as there:
        await eng.start("echo", metadata={"webhook": there.url()})
        [first] = await there.heard()
        await delivery(eng, first.headers["webhook-id"], "parked")
        await desk.resend(first.headers["webhook-id"])
        await there.heard(2)
        await delivery(eng, first.headers["webhook-id"], "delivered")

        async def closed() -> bool:
            return not await desk.urls()

        await until(closed, "that it took one says that it wants more")


async def test_one_that_never_answers_is_parked_too(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    await teller(eng, ROLES, webhook_timeout_ms=50, webhook_retries="10ms")
    async with receiver(never) as there:
        await eng.start("echo", metadata={"webhook": there.url()})
        [first] = await there.heard()
        found = await delivery(eng, first.headers["webhook-id"], "parked")
    assert [attempt.says for attempt in found.attempts] == ["no answer within 0.05 s"] * 2


# ── what holds up nobody ─────────────────────────────────────────────────────────────────────────────────────────


async def test_while_a_receiver_asks_for_a_pause_nothing_that_is_owed_to_it_is_sent(eng_with_sql: Engine) -> None:
    eng = eng_with_sql
    await eng.pipeline("echo", "util/echo")
    await teller(eng, ROLES)
    async with receiver(status(429, "Retry-After: 3600"), OK) as there, receiver() as other:
        await eng.start("echo", metadata={"webhook": there.url()})
        [first] = await there.heard()
        await delivery(eng, first.headers["webhook-id"], "retrying")
        urls = [*[there.url()] * 10, other.url()]
        await eng.transactions.start_batch("acme", [StartRequest("echo", metadata={"webhook": url}) for url in urls])
        await other.heard()
        await _let_go(eng)
        assert len(there.requests) == 1


async def test_a_row_that_sql_does_not_take_holds_up_no_others(
    eng_with_sql: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    eng = eng_with_sql
    write = Deliveries.write

    async def picky(self: Deliveries, rows: Sequence[DeliveryRow]) -> None:
        if any("/odd" in row.url for row in rows):
            raise RowsRefused("it is too odd")
        await write(self, rows)

    monkeypatch.setattr(Deliveries, "write", picky)
    await eng.pipeline("echo", "util/echo")
    await teller(eng, ROLES, webhook_retries="10ms,10ms,10ms")
    async with receiver(status(500)) as there:
        urls = [there.url("/odd"), *[there.url()] * 5]
        await eng.transactions.start_batch("acme", [StartRequest("echo", metadata={"webhook": url}) for url in urls])
        desk = desk_of(eng)

        async def parked() -> bool:
            in_sql, in_store = await desk.page(state="parked"), await desk.page(state="owed")
            return (len(in_sql), [one.state for one in in_store]) == (5, ["parked"])

        await until(parked, "five are parked in SQL, and the odd one in the store")
    await desk.resend((await desk.page(state="owed"))[0].id)


async def test_many_who_need_the_same_keys_ask_once(eng_with_sql: Engine) -> None:
    assert eng_with_sql.archive is not None
    stored = WebhookKeys(eng_with_sql.archive.database)
    asked: list[str] = []
    signing = stored.signing

    async def counted(owner: str, now_ms: int) -> list[WebhookKey]:
        asked.append(owner)
        return await signing(owner, now_ms)

    stored.signing = counted  # type: ignore[method-assign]
    await stored.first("acme", bytes, 1)
    asked.clear()
    owner_keys = OwnerKeys(stored, "")
    found = await asyncio.gather(*(owner_keys.of("acme", 1) for _ in range(50)))
    assert asked == ["acme"]
    assert all(keys == found[0] for keys in found)
