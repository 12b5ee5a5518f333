"""A transfer is prepared, reserved, and ends exactly once: fulfilled, aborted, rejected or expired."""

import asyncio
import hashlib
import random
import time

import pytest
from bank import NOW_MS, OWNER, Bank

from datp.errors import BadRequest, DatabaseUnreachable, NotFound, TransferRefused
from datp.model.reply import iso
from datp.transfers.ledger import Ledger
from datp.transfers.state import TransferState
from datp.transfers.transfer import show

S = TransferState


# ── the ordinary ways ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_transfer_is_reserved_and_committed(bank: Bank) -> None:
    transfer = await bank.prepared()
    assert (transfer.state, await bank.position("anna")) == (S.RESERVED, "10.00")
    done = await bank.ledger.fulfil(OWNER, transfer.transfer_id)
    assert done.state == S.COMMITTED
    assert (await bank.position("anna"), await bank.position("bert")) == ("10.00", "-10.00")
    assert await bank.states(done) == [S.RECEIVED_PREPARE, S.RESERVED, S.RECEIVED_FULFIL, S.COMMITTED]
    assert await bank.events(done) == ["committed"]


async def test_what_is_not_fulfilled_in_time_expires_and_is_released_and_told(bank: Bank) -> None:
    transfer = await bank.prepared()
    bank.time.now_ms += 10_000
    assert await bank.ledger.expire_due(100) == 1
    expired = await bank.ledger.read(OWNER, transfer.transfer_id)
    assert (expired.state, expired.error_code, expired.error_text) == (S.EXPIRED_RESERVED, "3303", "Transfer expired")
    assert await bank.position("anna") == "0.00"
    assert await bank.events(expired) == ["expired"]
    assert await bank.ledger.expire_due(100) == 0


async def test_one_that_was_only_received_expires_and_is_told_too(bank: Bank) -> None:
    transfer = await bank.prepared(reserve=False)
    assert (transfer.state, await bank.position("anna")) == (S.RECEIVED_PREPARE, "0.00")
    bank.time.now_ms += 10_000
    await bank.ledger.expire_due(100)
    expired = await bank.ledger.read(OWNER, transfer.transfer_id)
    assert expired.state == S.EXPIRED_PREPARED
    assert await bank.events(expired) == ["expired"]
    with pytest.raises(TransferRefused, match="Transfer expired"):
        await bank.ledger.reserve(OWNER, transfer.transfer_id)  # late, changes nothing and tells nothing new
    assert await bank.events(expired) == ["expired"]


async def test_one_that_was_received_is_reserved_later(bank: Bank) -> None:
    transfer = await bank.prepared(reserve=False)
    assert (await bank.ledger.reserve(OWNER, transfer.transfer_id)).state == S.RESERVED
    assert (await bank.ledger.reserve(OWNER, transfer.transfer_id)).state == S.RESERVED
    assert await bank.position("anna") == "10.00"


async def test_what_is_aborted_is_released(bank: Bank) -> None:
    transfer = await bank.prepared()
    aborted = await bank.ledger.abort(OWNER, transfer.transfer_id, "3100", "the goods are broken")
    assert (aborted.state, aborted.error_text) == (S.ABORTED, "the goods are broken")
    assert await bank.position("anna") == "0.00"
    assert (await bank.ledger.abort(OWNER, transfer.transfer_id)).version == aborted.version
    with pytest.raises(TransferRefused, match="is ABORTED, and can't be fulfilled") as refused:
        await bank.ledger.fulfil(OWNER, transfer.transfer_id)
    assert refused.value.reason == "3100"


async def test_a_payer_with_too_little_is_rejected(bank: Bank) -> None:
    rejected = await bank.prepared(amount="1000.01")
    assert (rejected.state, rejected.error_code) == (S.REJECTED, "4001")
    assert await bank.position("anna") == "0.00"
    await bank.ledger.set_limits(OWNER, "anna", "USD", "1000", "50")
    assert (await bank.prepared(amount="50.01")).error_code == "4200"
    assert (await bank.prepared(amount="50.00")).state == S.RESERVED
    assert (await bank.prepared(amount="0.01")).error_code == "4200"


# ── the same again ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_same_request_again_gives_the_transfer_as_it_is_now(bank: Bank) -> None:
    request = bank.request()
    first = await bank.ledger.prepare(OWNER, request)
    again = await bank.ledger.prepare(OWNER, request)
    assert (first.is_replay, again.is_replay, again.transfer) == (False, True, first.transfer)
    await bank.ledger.fulfil(OWNER, request.transfer_id)
    assert (await bank.ledger.prepare(OWNER, request)).transfer.state == S.COMMITTED
    assert await bank.position("anna") == "10.00"


async def test_another_request_with_the_same_id_is_refused(bank: Bank) -> None:
    transfer = await bank.prepared()
    with pytest.raises(TransferRefused, match="Modified request") as refused:
        await bank.prepared(transfer_id=transfer.transfer_id, amount="11.00")
    assert refused.value.reason == "3106"


async def test_another_owner_has_ids_of_its_own(bank: Bank) -> None:
    transfer = await bank.prepared()
    with pytest.raises(NotFound, match="Transfer ID not found"):
        await bank.ledger.read("other", transfer.transfer_id)
    with pytest.raises(NotFound, match="Transfer ID not found"):
        await bank.ledger.fulfil("other", transfer.transfer_id)


async def test_an_invalid_prepare_is_told_and_does_not_burn_its_id(bank: Bank) -> None:
    invalid = await bank.prepared(transfer_id="again", payee="carl")
    assert (invalid.state, invalid.error_code) == (S.INVALID, "3100")
    assert invalid.error_text == "Payee carl has no position in USD"
    assert show(invalid).state == "ABORTED"
    past = await bank.prepared(transfer_id="again", expiration=iso(NOW_MS))
    assert past.error_text.startswith("Expiration ") and past.error_text.endswith(" is past")
    fine = await bank.prepared(transfer_id="again")
    assert (fine.state, fine.error_code, fine.error_text) == (S.RESERVED, "", "")
    assert await bank.states(fine) == [S.INVALID, S.INVALID, S.RECEIVED_PREPARE, S.RESERVED]


async def test_the_same_fulfilment_again_is_fine_and_another_is_not(bank: Bank) -> None:
    secret = b"a secret of the payee"
    transfer = await bank.prepared(condition=hashlib.sha256(secret).hexdigest())
    await bank.ledger.fulfil(OWNER, transfer.transfer_id, secret.hex())
    assert (await bank.ledger.fulfil(OWNER, transfer.transfer_id, secret.hex())).state == S.COMMITTED
    with pytest.raises(TransferRefused) as refused:
        await bank.ledger.fulfil(OWNER, transfer.transfer_id, b"another".hex())
    assert refused.value.reason == "3106"


async def test_a_wrong_fulfilment_aborts(bank: Bank) -> None:
    transfer = await bank.prepared(condition=hashlib.sha256(b"right").hexdigest())
    with pytest.raises(TransferRefused, match="is aborted: the fulfilment is not what its condition was made from"):
        await bank.ledger.fulfil(OWNER, transfer.transfer_id, b"wrong".hex())
    aborted = await bank.ledger.read(OWNER, transfer.transfer_id)
    assert (aborted.state, aborted.error_code) == (S.ABORTED, "3100")
    assert await bank.position("anna") == "0.00"


# ── deadlines ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("early_ms", [1, 0, -1])
async def test_at_its_deadline_a_transfer_expires_and_a_moment_before_it_can_be_fulfilled(
    bank: Bank, early_ms: int
) -> None:
    transfer = await bank.prepared()
    bank.time.now_ms += 10_000 - early_ms
    if early_ms > 0:
        assert await bank.ledger.expire_due(100) == 0
        assert (await bank.ledger.fulfil(OWNER, transfer.transfer_id)).state == S.COMMITTED
    else:
        with pytest.raises(TransferRefused, match="Transfer expired") as refused:
            await bank.ledger.fulfil(OWNER, transfer.transfer_id)
        assert refused.value.reason == "3303"


async def test_a_late_fulfilment_is_refused_and_recorded_and_who_was_told_sees_the_state(bank: Bank) -> None:
    transfer = await bank.prepared()
    bank.time.now_ms += 10_000
    for _ in range(2):
        with pytest.raises(TransferRefused):
            await bank.ledger.fulfil(OWNER, transfer.transfer_id, "ff")
    # No sweep has come by, but whoever was told sees it so.
    assert show(await bank.ledger.read(OWNER, transfer.transfer_id)).state == "EXPIRED"
    assert await bank.events(transfer) == ["expired", "late-fulfil"]
    assert await bank.position("anna") == "0.00"
    assert await bank.ledger.expire_due(100) == 0


async def test_a_deadline_is_moved_and_removed(bank: Bank) -> None:
    transfer = await bank.prepared()
    await bank.ledger.extend(OWNER, transfer.transfer_id, NOW_MS + 60_000)
    bank.time.now_ms += 30_000
    assert await bank.ledger.expire_due(100) == 0
    await bank.ledger.extend(OWNER, transfer.transfer_id, None)
    bank.time.now_ms += 10**12
    assert await bank.ledger.expire_due(100) == 0
    with pytest.raises(BadRequest, match="is past"):
        await bank.ledger.extend(OWNER, transfer.transfer_id, NOW_MS)
    assert (await bank.ledger.fulfil(OWNER, transfer.transfer_id)).state == S.COMMITTED
    with pytest.raises(TransferRefused, match="COMMITTED, and can't be extended"):
        await bank.ledger.extend(OWNER, transfer.transfer_id, None)


async def test_what_expired_is_not_extended_nor_aborted(bank: Bank) -> None:
    transfer = await bank.prepared()
    bank.time.now_ms += 10_000
    for refused in (
        bank.ledger.extend(OWNER, transfer.transfer_id, NOW_MS + 60_000),
        bank.ledger.abort(OWNER, transfer.transfer_id),
    ):
        with pytest.raises(TransferRefused, match="Transfer expired"):
            await refused


async def test_what_is_due_soon_is_listed_page_by_page(bank: Bank) -> None:
    same = iso(NOW_MS + 5_000)
    due = [await bank.prepared(expiration=same, amount="1.00") for _ in range(3)]
    due += [await bank.prepared(expiration=iso(NOW_MS + 9_000), amount="1.00")]
    await bank.prepared(expiration=iso(NOW_MS + 20_000), amount="1.00")
    await bank.prepared(expiration=None, amount="1.00")
    seen, after = [], (-1, 0)
    while page := await bank.ledger.due_by(NOW_MS + 10_000, OWNER, after, 2):
        seen += page
        after = (page[-1].expiration or 0, page[-1].id)
    assert seen == due
    assert [(one.currency, one.transfers, one.amount) for one in await bank.ledger.would_expire(NOW_MS + 10_000)] == [
        ("USD", 4, "4.00")
    ]


async def test_a_backlog_is_swept_in_bounded_batches(bank: Bank) -> None:
    for _ in range(25):
        await bank.prepared(amount="1.00")
    bank.time.now_ms += 10_000
    assert [await bank.ledger.expire_due(10) for _ in range(4)] == [10, 10, 5, 0]
    assert await bank.position("anna") == "0.00"


async def test_the_databases_clock_is_the_worlds(bank: Bank) -> None:
    before = time.time_ns() // 1_000_000
    assert before - 1 <= await Ledger(bank.database).now() <= time.time_ns() // 1_000_000 + 1


# ── races ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_of_fulfil_abort_extend_and_sweep_at_once_exactly_one_wins(bank: Bank) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    transfers = [await bank.prepared(amount="1.00") for _ in range(40)]
    bank.time.now_ms += 9_999

    async def tried(call: object) -> object:
        try:
            return await call  # type: ignore[misc]
        except (TransferRefused, BadRequest) as error:
            return error
        except DatabaseUnreachable as error:  # a deadlock that the database broke: the caller may try again
            return error

    calls = [
        call
        for transfer in transfers
        for call in (
            bank.ledger.fulfil(OWNER, transfer.transfer_id),
            bank.ledger.abort(OWNER, transfer.transfer_id),
            bank.ledger.extend(OWNER, transfer.transfer_id, bank.time.now_ms + 1),
        )
    ]
    calls += [bank.ledger.expire_due(7) for _ in range(12)]
    chance.shuffle(calls)
    middle = len(calls) // 2

    async def time_passes() -> None:
        bank.time.now_ms += 10

    await asyncio.gather(*map(tried, [*calls[:middle], time_passes(), *calls[middle:]]))
    while await bank.ledger.expire_due(100):
        pass
    for transfer in transfers:
        now = await bank.ledger.read(OWNER, transfer.transfer_id)
        assert now.state in (S.COMMITTED, S.ABORTED, S.EXPIRED_RESERVED)
        ends = [kind for kind in await bank.events(transfer) if kind != "late-fulfil"]
        assert len(ends) == 1, (now, ends)


async def test_the_same_prepare_many_times_at_once_is_one(bank: Bank) -> None:
    request = bank.request()

    async def prepare() -> bool:
        return (await bank.ledger.prepare(OWNER, request)).is_replay

    replays = await asyncio.gather(*(prepare() for _ in range(8)))
    assert sorted(replays) == [False] + [True] * 7
    assert await bank.position("anna") == "10.00"
