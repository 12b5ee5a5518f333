"""Operator events are posted to the operator's webhook: signed, once, and again while they go on."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import receivers
from receivers import Receiver, status
from standardwebhooks import Webhook
from worker.support import Engine, until

from datp.archive.events import EventLog, OperatorEvents, move
from datp.errors import StartRefused
from datp.model.operator_event import EventCode
from datp.model.signature import new_key
from datp.webhooks.operator_webhook import Teller

KEY = new_key("v1", bytes(32))


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receivers.receiver() as started:
        yield started


def teller(eng: Engine, receiver: Receiver, **more: object) -> tuple[Teller, EventLog]:
    assert eng.archive is not None
    settings = replace(
        eng.settings,
        operator_webhook=receiver.url("/alarm"),
        operator_webhook_key=KEY,
        outbound_networks="",
        event_interval_ms=1,
        **more,  # type: ignore[arg-type]
    )
    log = EventLog(eng.archive.database)
    return Teller(eng.store, settings, log), log


async def raise_one(eng: Engine, subject: str = "node n1") -> None:
    assert eng.archive is not None
    await OperatorEvents(eng.store, None).raise_event(EventCode.CLOCK_SKEW, subject, "it is late")
    await move(eng.store, EventLog(eng.archive.database))


async def turned(one: Teller, receiver: Receiver, times: int) -> None:
    """It has looked until so many requests had come. By its clock an event may be a millisecond ahead."""

    async def posted() -> bool:
        await one.turn()
        return len(receiver.requests) >= times

    await until(posted, f"{times} requests have come")


async def test_an_event_is_posted_once_and_others_can_verify_it(eng_with_sql: Engine, receiver: Receiver) -> None:
    first, log = teller(eng_with_sql, receiver)
    second, _ = teller(eng_with_sql, receiver)
    await raise_one(eng_with_sql)
    await turned(first, receiver, 1)
    for one in (second, first):
        await one.turn()
    [request] = receiver.requests
    said = Webhook(KEY).verify(request.body, request.headers)
    assert (said["type"], said["data"]["code"], said["data"]["subject"]) == ("operator.event", "clock-skew", "node n1")
    assert request.path == "/alarm" and request.headers["webhook-id"].startswith(said["data"]["id"])
    await raise_one(eng_with_sql)
    await first.turn()
    assert len(receiver.requests) == 1, "it goes on, and was told"
    [event] = await log.read(acknowledged=False, count=1)
    await log.acknowledge(event.id, "anna", eng_with_sql.store.clock.now_ms())
    await raise_one(eng_with_sql)
    await turned(first, receiver, 2)  # after an acknowledgement it begins anew
    for one in (first, second):
        await one.stop()


async def test_one_that_is_not_taken_is_posted_again_later(eng_with_sql: Engine, receiver: Receiver) -> None:
    receiver.answers = [status(500), status(200)]
    one, log = teller(eng_with_sql, receiver)
    await raise_one(eng_with_sql)
    await turned(one, receiver, 1)
    await one.turn()
    assert len(receiver.requests) == 1, "not at once"
    later = eng_with_sql.store.clock.now_ms() + 3_600_000
    [due] = await log.due(later, 10)
    assert due.tries == 1
    await log.retell(due, due.tell_at, 1)

    async def taken() -> bool:
        await one.turn()
        return not await log.due(later, 10)

    await until(taken, "it is taken")
    first, second = (request.headers["webhook-id"] for request in receiver.requests)
    assert first == second
    await one.stop()


async def test_without_a_key_it_does_not_start(eng_with_sql: Engine, receiver: Receiver) -> None:
    assert eng_with_sql.archive is not None
    settings = replace(eng_with_sql.settings, operator_webhook=receiver.url())
    with pytest.raises(StartRefused, match="DATP_OPERATOR_WEBHOOK_KEY"):
        Teller(eng_with_sql.store, settings, EventLog(eng_with_sql.archive.database))
