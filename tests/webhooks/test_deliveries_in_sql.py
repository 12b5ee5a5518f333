"""What SQL knows of deliveries, on every database: written by senders, claimed once, guarded by claims."""

import asyncio

import msgspec
from archive.archived import made

from datp.archive.database import Database
from datp.archive.deliveries import Attempt, Deliveries, DeliveryRow, DeliveryState, attempt_line
from datp.archive.webhook_keys import WebhookKeys

NOW_MS = 1_800_000_000_000


def row(number: int = 0, state: DeliveryState = DeliveryState.DELIVERED, tries: int = 1, **more: object) -> DeliveryRow:
    tx_id = f"tx-00-{number:022d}"
    values = {
        "id": f"{tx_id}-7",
        "tx_id": tx_id,
        "sequence": 7,
        "owner": "anna",
        "url": "https://client.example/hook",
        "kind": "transaction.completed",
        "state": state,
        "tries": tries,
        "next_try_at": NOW_MS + 10 if state == DeliveryState.WAITING else None,
        "status": 200,
        "says": "ok",
        "created_at": NOW_MS + number,
        "updated_at": NOW_MS + number,
        "body": b'{"type":"x\xc3\xbc"}' if state in (DeliveryState.WAITING, DeliveryState.PARKED) else None,
        "attempts": attempt_line(Attempt(NOW_MS + tries, 200, 3, f"try {tries} 🌙")),
        **more,
    }
    return msgspec.convert(values, DeliveryRow)


async def states(deliveries: Deliveries, owner: str = "", state: str = "") -> list[tuple[str, str, int]]:
    return [(one.id, one.state, one.tries) for one in await deliveries.page(owner, state)]


async def test_every_try_of_a_delivery_is_kept_in_its_row(database: Database) -> None:
    deliveries = Deliveries(database)
    await deliveries.write([row(1, DeliveryState.RETRYING, 1), row(2)])
    await deliveries.write([row(1, DeliveryState.RETRYING, 2)])
    await deliveries.write([row(1, DeliveryState.RETRYING, 3), row(1, DeliveryState.DELIVERED, 4, says="thank\0 you")])
    shown = await deliveries.read(row(1).id)
    assert shown is not None
    assert [attempt.says for attempt in shown.attempts] == [f"try {n} 🌙" for n in (1, 2, 3, 4)]
    assert (shown.delivery.state, shown.delivery.tries, shown.delivery.says) == ("delivered", 4, "thank\ufffd you")
    assert shown.delivery.created_at == NOW_MS + 1
    assert not shown.has_body
    assert await deliveries.read("tx-none-1") is None


async def test_what_is_due_is_given_to_one(database: Database) -> None:
    deliveries = Deliveries(database)
    await deliveries.write(
        [row(n, DeliveryState.WAITING, 3) for n in range(6)] + [row(9), row(8, DeliveryState.PARKED)]
    )
    assert await deliveries.claim(NOW_MS + 9, NOW_MS + 100, 10, "a.1") == []
    both = await asyncio.gather(
        *(deliveries.claim(NOW_MS + 10, NOW_MS + 100, 3, claim) for claim in ("a.2", "b.1")),
    )
    ids = [one.id for found in both for one in found]
    assert sorted(ids) == [row(n).id for n in range(6)]
    assert both[0][0].body == row(0, DeliveryState.WAITING).body
    assert (both[0][0].tries, both[0][0].forced) == (3, False)
    assert await deliveries.claim(NOW_MS + 99, NOW_MS + 200, 10, "a.3") == []
    assert len(await deliveries.claim(NOW_MS + 100, NOW_MS + 200, 10, "a.4")) == 6, "the claims have run out"


async def test_who_lost_its_claim_changes_nothing(database: Database) -> None:
    deliveries = Deliveries(database)
    await deliveries.write([row(1, DeliveryState.WAITING, 3)])
    await deliveries.claim(NOW_MS + 10, NOW_MS + 20, 10, "a.1")
    await deliveries.claim(NOW_MS + 20, NOW_MS + 30, 10, "b.1")
    await deliveries.finish([(row(1, DeliveryState.DELIVERED, 4), "a.1")])
    await deliveries.postpone([(row(1).id, "a.1", NOW_MS)])
    assert await states(deliveries) == [(row(1).id, "waiting", 3)]
    await deliveries.finish([(row(1, DeliveryState.WAITING, 4, next_try_at=NOW_MS + 50), "b.1")])
    [again] = await deliveries.claim(NOW_MS + 50, NOW_MS + 60, 10, "c.1")
    assert again.body == row(1, DeliveryState.WAITING).body, "the body stays until it is delivered"
    await deliveries.finish([(row(1, DeliveryState.DELIVERED, 5), "c.1")])
    shown = await deliveries.read(row(1).id)
    assert shown is not None
    assert (shown.delivery.state, len(shown.attempts), shown.has_body) == ("delivered", 3, False)


async def test_what_sql_has_taken_over_a_late_sender_does_not_take_back(database: Database) -> None:
    deliveries = Deliveries(database)
    await deliveries.write([row(1, DeliveryState.WAITING, 3)])
    await deliveries.write([row(1, DeliveryState.RETRYING, 2)])
    assert await states(deliveries) == [(row(1).id, "waiting", 3)]


async def test_one_that_was_not_tried_comes_later_and_does_not_count(database: Database) -> None:
    deliveries = Deliveries(database)
    await deliveries.write([row(1, DeliveryState.WAITING, 3)])
    await deliveries.claim(NOW_MS + 10, NOW_MS + 20, 10, "a.1")
    await deliveries.postpone([(row(1).id, "a.1", NOW_MS + 500)])
    assert await deliveries.claim(NOW_MS + 499, NOW_MS + 600, 10, "a.2") == []
    [one] = await deliveries.claim(NOW_MS + 500, NOW_MS + 600, 10, "a.3")
    assert one.tries == 3


async def test_one_that_was_given_up_is_sent_again_from_the_first_try_on(database: Database) -> None:
    deliveries = Deliveries(database)
    await deliveries.write([row(1, DeliveryState.PARKED, 9), row(2, DeliveryState.DELIVERED, 1)])
    assert await deliveries.resend(row(1).id, NOW_MS + 99)
    assert await deliveries.resend(row(2).id, NOW_MS + 99, b"again")
    found = await deliveries.claim(NOW_MS + 99, NOW_MS + 200, 10, "a.1")
    assert [(one.tries, one.forced) for one in found] == [(0, True)] * 2
    assert {one.id: one.body for one in found} == {row(1).id: row(1, DeliveryState.PARKED).body, row(2).id: b"again"}
    assert not await deliveries.resend(row(1).id, NOW_MS + 99), "it is being tried"


async def test_pages_are_the_newest_first_and_an_owner_sees_its_own(database: Database) -> None:
    deliveries = Deliveries(database)
    kinds = (DeliveryState.DELIVERED, DeliveryState.PARKED, DeliveryState.WAITING)
    await deliveries.write([row(n, kinds[n % 3], owner="anna" if n % 2 else "zoe") for n in range(20)])
    found: list[str] = []
    before = None
    while page := await deliveries.page("anna", before=before, count=3):
        found += [one.id for one in page]
        before = (page[-1].created_at, page[-1].id)
    assert found == [row(n).id for n in range(19, 0, -2)]
    assert [one for one, *_ in await states(deliveries, state="parked")] == [row(n).id for n in range(19, 0, -3)]
    assert await states(deliveries, "nobody") == []


async def test_what_is_old_and_done_with_is_deleted(database: Database) -> None:
    deliveries = Deliveries(database)
    await deliveries.write(
        [row(n, state) for n, state in enumerate((*DeliveryState, DeliveryState.DELIVERED, DeliveryState.DELIVERED))]
    )
    assert await deliveries.delete_old(NOW_MS + 6, 2) == 2
    assert await deliveries.delete_old(NOW_MS + 6, 10) == 2
    assert sorted(state for _, state, _ in await states(deliveries)) == ["delivered", "retrying", "waiting"]


async def test_an_end_that_was_told_is_no_longer_owed(database: Database) -> None:
    state = made(1, phase="complete", status="success", is_owed=True, webhook='{"url":"u"}')
    await database.write_states([state])
    deliveries = Deliveries(database)
    await deliveries.settle(["tx-none", state.tx_id])
    assert await database.owed_replies() == []


async def test_an_owner_has_one_first_key_whoever_makes_it(database: Database) -> None:
    keys = WebhookKeys(database)
    made_by = await asyncio.gather(*(keys.first("anna", lambda n, x=x: bytes([x] * n), NOW_MS) for x in range(4)))
    assert len({found[0].secret for found in made_by}) == 1
    assert await keys.signing("zoe", NOW_MS) == []
    assert [key.scheme for key in await keys.signing("anna", NOW_MS)] == ["v1"]


async def test_an_older_key_signs_until_its_grace_is_over(database: Database) -> None:
    keys = WebhookKeys(database)
    [first] = await keys.first("anna", bytes, NOW_MS)
    public = await keys.rotate("anna", "v1a", grace_ms=0, now_ms=NOW_MS + 1)
    second = await keys.rotate("anna", "v1", grace_ms=100, now_ms=NOW_MS + 2)
    assert second.secret != first.secret and public.secret.startswith("whsk_")

    async def signing(at: int) -> list[str]:
        return [key.id for key in await keys.signing("anna", NOW_MS + at)]

    assert await signing(3) == [second.id, public.id, first.id]
    assert await signing(102) == [second.id, public.id]
    third = await keys.rotate("anna", "v1", grace_ms=10_000, now_ms=NOW_MS + 50)
    assert await signing(101) == [third.id, second.id, public.id, first.id]
    assert await signing(103) == [third.id, second.id, public.id], "a longer grace lengthens none that was given"
    last = await keys.rotate("anna", "v1", grace_ms=0, now_ms=NOW_MS + 200)
    assert await signing(200) == [last.id, public.id], "who fears for a key ends it at once"
