"""The ledger: transfers and positions in SQL; every move is one SQL transaction, with its history, position and event.

    ledger = Ledger(database)
    prepared = await ledger.prepare("acme", TransferRequest(…))
    await ledger.fulfil("acme", "order-17", fulfilment)

Exactly one of fulfil, abort and expiry wins: each is one conditional UPDATE, fulfil and abort while `now < expiration`,
expiry from `expiration <= now` on. `now` is the database's clock, asked once in each SQL transaction and handed to
every statement of it; a test or a simulation gives its own.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from datp.archive.database import Database
from datp.archive.drivers import Connection
from datp.archive.queries import queries
from datp.errors import BadRequest, DatpError, NotFound, TransferRefused
from datp.model.metadata import check_webhook_url
from datp.model.reply import iso
from datp.model.values import printable, shown
from datp.transfers.money import format_amount, parse_amount, parse_currency
from datp.transfers.state import TEXTS, TransferCode, TransferState
from datp.transfers.transfer import (
    TEXT_MAX,
    Change,
    Checked,
    Position,
    Transfer,
    TransferRequest,
    check_request,
    is_fulfilled_by,
    parse_participant,
    parse_transfer_id,
    reason_of,
)

PACKAGE: Final = "datp.transfers"
FIRST: Final = 2**62
"""Where a list that begins with the newest begins."""

WEBHOOK_LENGTH_MAX: Final = 2_000
"""As long as the column."""

_S = TransferState


class Prepared(msgspec.Struct, frozen=True):
    """A transfer that was prepared, now or by the same request before."""

    transfer: Transfer
    is_replay: bool = False


class OwedDelivery(msgspec.Struct, frozen=True):
    """A webhook to a party."""

    about: str
    """Whose delivery it is: with the version it is the webhook-id."""
    version: int
    owner: str
    url: str
    kind: str
    body: bytes

    @property
    def id(self) -> str:
        return f"{self.about}-{self.version}"


class OwedEvent(msgspec.Struct, frozen=True):
    """Something that is to be told; the fields are in the order of the query."""

    id: int
    transfer: int
    version: int
    kind: str
    at: int
    deadline: int | None
    attempts: int
    note: str


class TransferEvent(msgspec.Struct, frozen=True, rename="camel"):
    """Something that was to be told, as an operator sees it."""

    id: int
    transfer_id: str
    owner: str
    kind: str
    at: str
    deadline: str | None
    told_at: str | None
    note: str


class Due(msgspec.Struct, frozen=True, rename="camel"):
    """What would expire, in one currency."""

    currency: str
    transfers: int
    amount: str


class Ledger:
    """Transfers of all owners; every method but the sweep's is bound to one."""

    def __init__(self, database: Database, now_ms: Callable[[], int] | None = None) -> None:
        self._driver = database.driver
        self._held_now = now_ms
        self._queries = queries(database.driver.dialect, PACKAGE)

    # ── a transfer's life ────────────────────────────────────────────────────────────────────────────────────

    async def prepare(self, owner: str, request: TransferRequest) -> Prepared:
        """The transfer is received, and reserved unless the request says otherwise.

        The same request again: the same transfer. One that can't be is kept as INVALID, and its id may be used again.
        A payer with too little: it is REJECTED. Raises BadRequest, TransferRefused (3106), DatabaseError.
        """
        checked = check_request(request)
        async with self._driver.writing() as connection:
            now = await self._now(connection)
            held = await self._lock(connection, owner, checked.transfer_id)
            if held is not None and held.state != _S.INVALID:
                return _replayed(held, checked)
            why = await self._why_invalid(connection, owner, checked, now)
            values = {
                **msgspec.structs.asdict(checked),
                "condition_digest": checked.condition,
                "state": (_S.INVALID if why else _S.RECEIVED_PREPARE).value,
                "error_code": TransferCode.VALIDATION.value if why else "",
                "error_text": printable(why, TEXT_MAX),
                "now": now,
            }
            given = {name: values[name] for name in self._queries["insert_transfer"].names if name != "owner"}
            if held is None:
                if not await connection.run(self._queries["insert_transfer"], owner=owner, **given):
                    # Somebody else was quicker by a moment.
                    return _replayed(await self._locked(connection, owner, checked.transfer_id), checked)
            else:
                del given["transfer_id"]
                await connection.run(self._queries["replace_invalid"], id=held.id, **given)
            transfer = await self._locked(connection, owner, checked.transfer_id)
            await self._record(connection, transfer.id, transfer.version, transfer.state, why, now)
            if checked.reserve and not why:
                transfer = await self._reserve(connection, transfer, now)
        return Prepared(transfer)

    async def reserve(self, owner: str, transfer_id: str) -> Transfer:
        """What was only received is reserved, or REJECTED. Raises NotFound, TransferRefused."""

        async def move(connection: Connection, transfer: Transfer, now: int) -> Transfer | DatpError:
            if transfer.state == _S.RESERVED:
                return transfer
            if transfer.state != _S.RECEIVED_PREPARE:
                return _not_in_state(transfer, "reserved")
            return await self._reserve(connection, transfer, now)

        return await self._move(owner, transfer_id, move)

    async def fulfil(self, owner: str, transfer_id: str, fulfilment: str = "") -> Transfer:
        """It is COMMITTED, and the payee's position is less by the amount.

        The same fulfilment again: the same transfer. A late one is refused (3303) and recorded, since the payee may
        have paid out. A wrong one aborts the transfer (3100). Raises BadRequest, NotFound, TransferRefused.
        """
        if not isinstance(fulfilment, str) or len(fulfilment) > 1_000 or not fulfilment.isascii():
            raise BadRequest("fulfilment must be a text of at most 1000 ASCII characters", field="fulfilment")

        async def move(connection: Connection, transfer: Transfer, now: int) -> Transfer | DatpError:
            if transfer.state == _S.COMMITTED:
                if transfer.fulfilment == fulfilment:
                    return transfer
                return _refusal(TransferCode.MODIFIED, f"{transfer_id} was committed with another fulfilment")
            if transfer.state != _S.RESERVED:
                return _not_in_state(transfer, "fulfilled")
            if transfer.condition and not is_fulfilled_by(transfer.condition, fulfilment):
                text = "Invalid fulfilment"
                await self._end(connection, transfer, _S.ABORTED, TransferCode.VALIDATION, text, now)
                return _refusal(
                    TransferCode.VALIDATION,
                    f"{transfer_id} is aborted: the fulfilment is not what its condition was made from",
                )
            if not await connection.run(
                self._queries["commit_transfer"], id=transfer.id, fulfilment=fulfilment, now=now
            ):
                raise AssertionError(f"{transfer_id} is locked, reserved and not due, and must be committed")
            for step, state in enumerate((_S.RECEIVED_FULFIL, _S.COMMITTED), 1):
                await self._record(connection, transfer.id, transfer.version + step, state, "", now)
            await self._owe(connection, transfer.id, transfer.version + 2, "committed", transfer.expiration, now)
            # Last: a position is what many wait for.
            await self._move_position(connection, owner, transfer.payee, transfer.currency, transfer.amount)
            return await self._locked(connection, owner, transfer_id)

        async def late(connection: Connection, transfer: Transfer, now: int) -> None:
            note = f"fulfilment {fulfilment}" if fulfilment else "without a fulfilment"
            await self._owe(connection, transfer.id, transfer.version, "late-fulfil", transfer.expiration, now, note)

        return await self._move(owner, transfer_id, move, when_late=late)

    async def abort(
        self, owner: str, transfer_id: str, code: str = TransferCode.VALIDATION, text: str = ""
    ) -> Transfer:
        """It is ABORTED, and what was reserved is released. Raises BadRequest, NotFound, TransferRefused."""
        if code not in list(TransferCode):
            known = ", ".join(sorted(TransferCode))
            raise BadRequest(f"{shown(code)} is not an error code of transfers: {known}", field="errorCode")

        async def move(connection: Connection, transfer: Transfer, now: int) -> Transfer | DatpError:
            if transfer.state == _S.ABORTED:
                return transfer
            if transfer.state not in (_S.RECEIVED_PREPARE, _S.RESERVED):
                return _not_in_state(transfer, "aborted")
            said = reason_of(TransferCode(code), text or "Aborted")
            await self._end(connection, transfer, _S.ABORTED, TransferCode(code), said, now)
            return await self._locked(connection, owner, transfer_id)

        return await self._move(owner, transfer_id, move)

    async def extend(self, owner: str, transfer_id: str, expiration: int | None) -> Transfer:
        """Its deadline is this one from now on; None: never. Raises BadRequest, NotFound, TransferRefused."""

        async def move(connection: Connection, transfer: Transfer, now: int) -> Transfer | DatpError:
            if transfer.state not in (_S.RECEIVED_PREPARE, _S.RESERVED):
                return _not_in_state(transfer, "extended")
            if expiration is not None and expiration <= now:
                return BadRequest(f"{iso(expiration)} is past: a deadline is moved to the future", field="expiration")
            await connection.run(self._queries["extend_transfer"], id=transfer.id, expiration=expiration, now=now)
            said = "Deadline removed" if expiration is None else f"Deadline moved to {iso(expiration)}"
            await self._record(connection, transfer.id, transfer.version + 1, transfer.state, said, now)
            return await self._locked(connection, owner, transfer_id)

        return await self._move(owner, transfer_id, move)

    # ── expiry ───────────────────────────────────────────────────────────────────────────────────────────────

    async def expire_due(self, count: int) -> int:
        """Some of those past their deadline are expired, the longest first; how many. Fewer than `count`: no more.

        Any number of sweepers may do this at once; each transfer is expired by one of them.
        """
        if await self.next_deadline_in_ms() != 0:
            return 0  # as nearly always; nobody's turn to write was taken for it
        async with self._driver.writing() as connection:
            now = await self._now(connection)
            rows = await connection.rows(self._queries["due_transfers"], now=now, count=count)
            if rows:
                await self._expire(connection, rows, now)
        return len(rows)

    async def next_deadline_in_ms(self) -> int | None:
        """How long until the next one expires; None: none will."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["next_deadline"])
            return max(0, rows[0][0] - await self._now(connection)) if rows else None

    # ── telling ──────────────────────────────────────────────────────────────────────────────────────────────

    async def claim_events(self, count: int, claim_ms: int) -> list[tuple[OwedEvent, Transfer]]:
        """Some that are to be told, the longest owed first; unless they are told, others get them after the claim."""
        async with self._driver.writing() as connection:
            now = await self._now(connection)
            rows = await connection.rows(self._queries["claim_events"], now=now, count=count)
            events = [OwedEvent(*row) for row in rows]
            if not events:
                return []
            ids = [event.id for event in events]
            await connection.run(self._queries["put_off_events"], ids=ids, due_at=now + claim_ms)
            numbers = sorted({event.transfer for event in events})
            transfers = {
                row[0]: _transfer(row) for row in await connection.rows(self._queries["read_transfers"], ids=numbers)
            }
        return [(event, transfers[event.transfer]) for event in events]

    async def told(self, ids: Sequence[int], owed: Sequence[OwedDelivery] = ()) -> None:
        """Switches were set for these; and the parties' webhooks are owed, each once, in the same SQL transaction."""
        async with self._driver.writing() as connection:
            now = await self._now(connection)
            for one in owed:
                await connection.run(self._queries["owe_delivery"], id=one.id, **msgspec.structs.asdict(one), now=now)
            await connection.run(self._queries["told_events"], ids=list(ids), now=now)

    async def webhooks_of(self, owner: str, names: Sequence[str]) -> dict[str, str]:
        """Where these participants are told, of those that have such a place."""
        found: dict[str, str] = {}
        async with self._driver.reading() as connection:
            for name in names:
                for _, webhook, _ in await connection.rows(self._queries["find_participant"], owner=owner, name=name):
                    if webhook:
                        found[name] = webhook
        return found

    async def events(self, kind: str, owner: str = "", before: int = FIRST, count: int = 100) -> list[TransferEvent]:
        """The next events of a kind, the newest first; of all owners for ''."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(
                self._queries["list_events"], kind=kind, owner=owner, before=before, count=count
            )
        return [
            TransferEvent(id, transfer_id, owner, kind, iso(at), _iso(deadline), _iso(told_at), note)
            for id, transfer_id, owner, kind, at, deadline, told_at, note in rows
        ]

    async def lateness_ms(self, count: int = 10_000) -> tuple[int, int] | None:
        """How long after their deadlines the last expiries were told: the median, and 99 of 100 (None: none was)."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["recent_lateness"], count=count)
        late = sorted(int(row[0]) for row in rows)
        return (late[len(late) // 2], late[len(late) * 99 // 100]) if late else None

    # ── expiring ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _expire(self, connection: Connection, rows: Sequence[Sequence[Any]], now: int) -> None:
        """These (id, owner, payer, currency, amount, state), locked and due, are expired, and will be told."""
        ids = [row[0] for row in rows]
        changed = await connection.run(self._queries["expire_transfers"], ids=ids, now=now)
        assert changed == len(ids), f"{len(ids)} transfers were locked and due, but {changed} were expired"
        for rest in ("record_expired", "owe_expired"):
            if rest in self._queries:  # PostgreSQL has done it in the same statement
                await connection.run(self._queries[rest], ids=ids)
        released: Counter[tuple[str, str, str]] = Counter()
        for _, owner, payer, currency, amount, state in rows:
            if state == _S.RESERVED:
                released[owner, payer, currency] += amount
        for (owner, payer, currency), amount in sorted(released.items()):  # in one order, whoever sweeps
            await self._move_position(connection, owner, payer, currency, amount)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    async def now(self) -> int:
        """The clock that decides."""
        async with self._driver.reading() as connection:
            return await self._now(connection)

    async def read(self, owner: str, transfer_id: str) -> Transfer:
        """The transfer. Raises BadRequest, NotFound."""
        parse_transfer_id(transfer_id)
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["find_transfer"], owner=owner, transfer_id=transfer_id)
        if not rows:
            raise _unknown(transfer_id)
        return _transfer(rows[0])

    async def history(self, transfer: Transfer) -> list[Change]:
        """What happened to it, in order."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["read_history"], transfer=transfer.id)
        return [Change(version, _S(state), reason, iso(at)) for version, state, reason, at in rows]

    async def in_state(
        self, owner: str, states: Sequence[TransferState], before: int = FIRST, count: int = 100
    ) -> list[Transfer]:
        """The next of an owner's transfers in these states, the newest first."""
        found: list[Transfer] = []
        async with self._driver.reading() as connection:
            for state in states:
                rows = await connection.rows(
                    self._queries["list_transfers"], owner=owner, state=state.value, before=before, count=count
                )
                found += [_transfer(row) for row in rows]
        return sorted(found, key=lambda transfer: -transfer.id)[:count]

    async def due_by(
        self, until: int, owner: str = "", after: tuple[int, int] = (-1, 0), count: int = 100
    ) -> list[Transfer]:
        """Pending transfers that expire by then, the first one first; `after`: the last one's expiration and id."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(
                self._queries["due_soon"], owner=owner, until=until, after=after[0], after_id=after[1], count=count
            )
        return [_transfer(row) for row in rows]

    async def would_expire(self, until: int, owner: str = "", count: int = 1_000_000) -> list[Due]:
        """How many would expire by then, and how much, in each currency; at the most `count` are looked at."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["count_due"], owner=owner, until=until, count=count)
        return [Due(currency, number, format_amount(int(amount), currency)) for currency, number, amount in rows]

    # ── participants ─────────────────────────────────────────────────────────────────────────────────────────

    async def save_participant(self, owner: str, name: str, webhook: str = "") -> None:
        """The participant is known; what concerns it is told to this webhook ('' for none). Raises BadRequest."""
        parse_participant(name, "name")
        if webhook:
            check_webhook_url(webhook, WEBHOOK_LENGTH_MAX, "webhook")
        async with self._driver.writing() as connection:
            now = await self._now(connection)
            await connection.run(self._queries["save_participant"], owner=owner, name=name, webhook=webhook, now=now)

    async def set_limits(
        self, owner: str, name: str, currency: str, liquidity: object, net_debit_cap: object = None
    ) -> Position:
        """The participant may owe so much in this currency; what it owes stays. Raises BadRequest, NotFound."""
        parse_currency(currency)
        most = parse_amount(liquidity, currency, "liquidity", may_be_zero=True)
        cap = None if net_debit_cap is None else parse_amount(net_debit_cap, currency, "netDebitCap", may_be_zero=True)
        async with self._driver.writing() as connection:
            await self._check_participant(connection, owner, name)
            await connection.run(
                self._queries["save_position"],
                owner=owner,
                participant=name,
                currency=currency,
                liquidity=most,
                net_debit_cap=cap,
            )
        return next(one for one in await self.positions(owner, name) if one.currency == currency)

    async def positions(self, owner: str, name: str) -> list[Position]:
        """The participant's limits and positions, by currency. Raises NotFound."""
        async with self._driver.reading() as connection:
            await self._check_participant(connection, owner, name)
            rows = await connection.rows(self._queries["read_positions"], owner=owner, participant=name)
        return [
            Position(
                participant,
                currency,
                format_amount(liquidity, currency),
                None if cap is None else format_amount(cap, currency),
                format_amount(position, currency),
            )
            for participant, currency, liquidity, cap, position in rows
        ]

    async def participants(self, owner: str, after: str = "", count: int = 100) -> list[tuple[str, str]]:
        """The next of an owner's participants by name, each with its webhook."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["list_participants"], owner=owner, after=after, count=count)
        return [(name, webhook) for name, webhook, _ in rows]

    # ── checking ─────────────────────────────────────────────────────────────────────────────────────────────

    async def check(self, batch: int = 10_000) -> list[str]:
        """A sentence for each transfer whose state is not the last of its history, and each position that is not what
        its transfers make it. While transfers move, what is read at two moments may look like a disagreement."""
        found: list[str] = []
        async with self._driver.reading() as connection:
            ((last,),) = await connection.rows(self._queries["last_transfer"])
            for after in range(0, last, batch):
                for owner, transfer_id, state, version, recorded, recorded_version in await connection.rows(
                    self._queries["disagreeing"], after=after, until=after + batch
                ):
                    found.append(
                        f"{transfer_id} of {owner} is {state} at version {version}, but its history ends with"
                        f" {recorded or 'nothing'} at {recorded_version}"
                    )
            for owner, participant, currency, position, wanted in await connection.rows(
                self._queries["wrong_positions"]
            ):
                found.append(
                    f"{participant} of {owner} has a position of {format_amount(int(position), currency)} {currency},"
                    f" but its transfers make it {format_amount(int(wanted), currency)}"
                )
        return found

    # ── pieces of a move ─────────────────────────────────────────────────────────────────────────────────────

    async def _move(
        self,
        owner: str,
        transfer_id: str,
        move: Callable[[Connection, Transfer, int], Awaitable[Transfer | DatpError]],
        when_late: Callable[[Connection, Transfer, int], Awaitable[None]] | None = None,
    ) -> Transfer:
        """The transfer is moved, or expired if its time is over; what is refused is raised after what it changed."""
        parse_transfer_id(transfer_id)
        async with self._driver.writing() as connection:
            transfer = await self._lock(connection, owner, transfer_id)
            if transfer is None:
                raise _unknown(transfer_id)
            now = await self._now(connection)  # after the lock: who waited for it may have waited past the deadline
            if transfer.is_pending and transfer.expiration is not None and transfer.expiration <= now:
                row = (transfer.id, owner, transfer.payer, transfer.currency, transfer.amount, transfer.state)
                await self._expire(connection, [row], now)
                transfer = await self._locked(connection, owner, transfer_id)
            if transfer.state in (_S.EXPIRED_PREPARED, _S.EXPIRED_RESERVED):
                if when_late is not None:
                    await when_late(connection, transfer, now)
                outcome: Transfer | DatpError = _refusal(
                    TransferCode.EXPIRED,
                    f"{transfer_id}: {TEXTS[TransferCode.EXPIRED]}: its deadline was {iso(transfer.expiration or 0)}",
                )
            else:
                outcome = await move(connection, transfer, now)
        if isinstance(outcome, DatpError):
            raise outcome
        return outcome

    async def _reserve(self, connection: Connection, transfer: Transfer, now: int) -> Transfer:
        """The payer's position holds the amount; or the transfer is rejected."""
        taken = await connection.run(
            self._queries["take_position"],
            owner=transfer.owner,
            participant=transfer.payer,
            currency=transfer.currency,
            amount=transfer.amount,
        )
        if taken:
            changed = await connection.run(self._queries["reserve_transfer"], id=transfer.id, now=now)
            assert changed, f"{transfer.transfer_id} is locked, received and not due, and must be reserved"
            await self._record(connection, transfer.id, transfer.version + 1, _S.RESERVED, "", now)
        else:
            why = await self._why_too_little(connection, transfer)
            await self._end(connection, transfer, _S.REJECTED, why, TEXTS[why], now)
        return await self._locked(connection, transfer.owner, transfer.transfer_id)

    async def _end(
        self,
        connection: Connection,
        transfer: Transfer,
        state: TransferState,
        code: TransferCode,
        text: str,
        now: int,
    ) -> None:
        """It is rejected or aborted; what it had reserved is released."""
        changed = await connection.run(
            self._queries["end_transfer"], id=transfer.id, state=state.value, error_code=code.value, error_text=text,
            now=now,
        )  # fmt: skip
        assert changed, f"{transfer.transfer_id} is locked, pending and not due, and must end"
        await self._record(connection, transfer.id, transfer.version + 1, state, text, now)
        await self._owe(connection, transfer.id, transfer.version + 1, "aborted", transfer.expiration, now)
        if transfer.state == _S.RESERVED:
            await self._move_position(connection, transfer.owner, transfer.payer, transfer.currency, transfer.amount)

    async def _why_too_little(self, connection: Connection, transfer: Transfer) -> TransferCode:
        rows = await connection.rows(self._queries["read_positions"], owner=transfer.owner, participant=transfer.payer)
        for _, currency, liquidity, _, position in rows:
            if currency == transfer.currency and position + transfer.amount <= liquidity:
                return TransferCode.LIMIT
        return TransferCode.LIQUIDITY

    async def _why_invalid(self, connection: Connection, owner: str, checked: Checked, now: int) -> str:
        """What of the request can't be, though its form is right; '' when it can."""
        if checked.expiration is not None and checked.expiration <= now:
            return f"Expiration {iso(checked.expiration)} is past"
        for field, name in (("Payer", checked.payer), ("Payee", checked.payee)):
            rows = await connection.rows(self._queries["read_positions"], owner=owner, participant=name)
            if not any(row[1] == checked.currency for row in rows):
                return f"{field} {name} has no position in {checked.currency}"
        return ""

    async def _check_participant(self, connection: Connection, owner: str, name: str) -> None:
        parse_participant(name, "participant")
        if not await connection.rows(self._queries["find_participant"], owner=owner, name=name):
            raise NotFound(f"There is no participant {name}")

    async def _move_position(
        self, connection: Connection, owner: str, participant: str, currency: str, amount: int
    ) -> None:
        changed = await connection.run(
            self._queries["move_position"], owner=owner, participant=participant, currency=currency, amount=amount
        )
        assert changed == 1, f"{participant} of {owner} has transfers in {currency}, and must have a position"

    async def _record(
        self, connection: Connection, transfer: int, version: int, state: TransferState, reason: str, now: int
    ) -> None:
        await connection.run(
            self._queries["insert_change"],
            transfer=transfer,
            version=version,
            state=state.value,
            reason=printable(reason, TEXT_MAX),
            at=now,
        )

    async def _owe(
        self,
        connection: Connection,
        transfer: int,
        version: int,
        kind: str,
        deadline: int | None,
        now: int,
        note: str = "",
    ) -> None:
        """Something is to be told, once; it lives until it was."""
        await connection.run(
            self._queries["insert_event"],
            transfer=transfer,
            version=version,
            kind=kind,
            at=now,
            deadline=deadline,
            note=printable(note, TEXT_MAX),
        )

    async def _lock(self, connection: Connection, owner: str, transfer_id: str) -> Transfer | None:
        rows = await connection.rows(self._queries["lock_transfer"], owner=owner, transfer_id=transfer_id)
        return _transfer(rows[0]) if rows else None

    async def _locked(self, connection: Connection, owner: str, transfer_id: str) -> Transfer:
        found = await self._lock(connection, owner, transfer_id)
        assert found is not None, f"{transfer_id} is there, and transfers are never deleted"
        return found

    async def _now(self, connection: Connection) -> int:
        if self._held_now is not None:
            return self._held_now()
        ((now,),) = await connection.rows(self._queries["now"])
        return int(now)


def _transfer(row: Sequence[Any]) -> Transfer:
    values = dict(zip(Transfer.__struct_fields__, row, strict=True))
    return Transfer(**{**values, "state": _S(values["state"])})


def _replayed(held: Transfer, checked: Checked) -> Prepared:
    """The transfer that the same request prepared before; raises TransferRefused when it was another request."""
    if held.request_hash != checked.request_hash:
        raise _refusal(
            TransferCode.MODIFIED,
            f"{held.transfer_id}: {TEXTS[TransferCode.MODIFIED]}: a different request has this id",
        )
    return Prepared(held, is_replay=True)


def _not_in_state(transfer: Transfer, wanted: str) -> TransferRefused:
    return _refusal(
        TransferCode.VALIDATION, f"{transfer.transfer_id} is {transfer.state}, and can't be {wanted} any more"
    )


def _iso(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)


def _refusal(code: TransferCode, sentence: str) -> TransferRefused:
    return TransferRefused(sentence, reason=code.value)


def _unknown(transfer_id: str) -> NotFound:
    return NotFound(f"{TEXTS[TransferCode.UNKNOWN]}: {transfer_id}")
