"""Transfers, for the client whose they are: prepare, reserve, fulfil, abort, extend; participants; what is due."""

from typing import Annotated, Any, Final

import msgspec

from datp.api.http.api import Api
from datp.api.http.routes import Answer, Call, Route, Words
from datp.errors import BadRequest, DatabaseError, DatabaseRefused, NotFound, TransferRefused
from datp.model.api_key import Role
from datp.model.ids import parse_transaction_id
from datp.model.pipeline import duration_ms
from datp.model.reply import iso
from datp.transfers.ledger import FIRST, Due, Ledger, TransferEvent
from datp.transfers.state import states_shown_as
from datp.transfers.transfer import Change, Position, ShownTransfer, TransferRequest, parse_time, show

PAGE_MAX: Final = 1_000

TransferId = Annotated[str, msgspec.Meta(description="The transfer's id, made by the client.", examples=["order-17"])]
Limit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]


class OneTransfer(Words, frozen=True):
    transfer_id: TransferId


class OneParticipant(Words, frozen=True):
    participant: str


class WhichTransfers(Words, frozen=True):
    state: str = ""
    due_before: str = ""
    """Only pending ones whose deadline is before this, the first one first."""
    cursor: str = ""
    limit: Limit = 100


class WhichDue(Words, frozen=True):
    within: str = "0s"


class WhichEvents(Words, frozen=True):
    kind: str = "late-fulfil"
    cursor: str = ""
    limit: Limit = 100


class Fulfilment(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    fulfilment: str = ""
    """What the condition was made from, in hexadecimal."""


class Abortion(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    error_code: str = "3100"
    reason: str = ""


class Deadline(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    expiration: str | None
    """null: it never expires."""


class ParticipantLimits(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    currency: str | None = None
    liquidity: Any = None
    net_debit_cap: Any = None
    webhook: str | None = None


class TransferPage(msgspec.Struct, frozen=True, rename="camel"):
    transfers: list[ShownTransfer]
    cursor: str | None
    """Where the next page begins; null: there is none."""


class TransferWithHistory(msgspec.Struct, frozen=True, rename="camel"):
    transfer: ShownTransfer
    history: list[Change]


class WouldExpire(msgspec.Struct, frozen=True, rename="camel"):
    until: str
    sums: list[Due]


class EventPage(msgspec.Struct, frozen=True, rename="camel"):
    events: list[TransferEvent]
    cursor: str | None


class ParticipantShown(msgspec.Struct, frozen=True, rename="camel"):
    participant: str
    positions: list[Position]


class TransferRoutes:
    """The routes, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        one, moved = "/v1/transfers/{transferId}", (NotFound, TransferRefused, DatabaseError)
        return [
            _route("POST", "/v1/transfers", self.prepare_transfer, moved, status=201,
                   more={200: "The same request prepared it before."}),
            _route("GET", "/v1/transfers", self.list_transfers, (DatabaseError,)),
            _route("GET", "/v1/transfers/due", self.would_expire, (DatabaseError,)),
            _route("GET", "/v1/transfers/events", self.list_transfer_events, (DatabaseError,)),
            _route("GET", one, self.read_transfer, (NotFound, DatabaseError)),
            _route("GET", f"{one}/history", self.read_transfer_history, (NotFound, DatabaseError)),
            _route("PUT", f"{one}/reserve", self.reserve_transfer, moved),
            _route("PUT", f"{one}/fulfil", self.fulfil_transfer, moved),
            _route("PUT", f"{one}/abort", self.abort_transfer, moved),
            _route("PUT", f"{one}/expiration", self.extend_transfer, moved),
            _route("GET", "/v1/participants/{participant}", self.read_participant, (NotFound, DatabaseError)),
            _route("PUT", "/v1/participants/{participant}", self.save_participant, (DatabaseError,)),
        ]  # fmt: skip

    async def prepare_transfer(self, call: Call, body: TransferRequest) -> Answer[ShownTransfer]:
        """Prepare a transfer: the payer's position holds the amount, until it is fulfilled, aborted, or expires.

        The same request again gives the transfer as it is now. A payer with too little: state ABORTED, error 4001.
        """
        if body.tx_id is not None:
            # Its switch will be set, so it must be the caller's.
            reply = await self._api.transactions.reply(parse_transaction_id(body.tx_id))
            if not call.caller.owns(reply.owner):
                raise NotFound(f"There is no transaction {body.tx_id}")
        prepared = await self._ledger.prepare(call.caller.owner, body)
        headers = [(b"idempotent-replay", b"true")] if prepared.is_replay else []
        location = (b"location", f"/v1/transfers/{prepared.transfer.transfer_id}".encode())
        return Answer(show(prepared.transfer), 200 if prepared.is_replay else 201, [location, *headers])

    async def read_transfer(self, call: Call, path: OneTransfer) -> Answer[ShownTransfer]:
        """Read a transfer."""
        return Answer(show(await self._ledger.read(call.caller.owner, path.transfer_id)))

    async def read_transfer_history(self, call: Call, path: OneTransfer) -> Answer[TransferWithHistory]:
        """Read a transfer, and what happened to it."""
        transfer = await self._ledger.read(call.caller.owner, path.transfer_id)
        return Answer(TransferWithHistory(show(transfer), await self._ledger.history(transfer)))

    async def reserve_transfer(self, call: Call, path: OneTransfer) -> Answer[ShownTransfer]:
        """Reserve a transfer that was only received."""
        return Answer(show(await self._ledger.reserve(call.caller.owner, path.transfer_id)))

    async def fulfil_transfer(self, call: Call, path: OneTransfer, body: Fulfilment) -> Answer[ShownTransfer]:
        """Commit a transfer: the payee has the amount.

        After the deadline it is refused with 3303, and the late fulfilment is recorded.
        """
        return Answer(show(await self._ledger.fulfil(call.caller.owner, path.transfer_id, body.fulfilment)))

    async def abort_transfer(self, call: Call, path: OneTransfer, body: Abortion) -> Answer[ShownTransfer]:
        """Abort a transfer: what it had reserved is released."""
        owner = call.caller.owner
        return Answer(show(await self._ledger.abort(owner, path.transfer_id, body.error_code, body.reason)))

    async def extend_transfer(self, call: Call, path: OneTransfer, body: Deadline) -> Answer[ShownTransfer]:
        """Move a transfer's deadline, or remove it."""
        ends = None if body.expiration is None else parse_time(body.expiration, "expiration")
        return Answer(show(await self._ledger.extend(call.caller.owner, path.transfer_id, ends)))

    async def list_transfers(self, call: Call, query: WhichTransfers) -> Answer[TransferPage]:
        """List transfers, the newest first; or, with dueBefore, pending ones, the first to expire first."""
        owner = call.caller.owner
        if query.due_before:
            after = _numbers(query.cursor, 2) or [-1, 0]
            until = parse_time(query.due_before, "dueBefore") - 1
            found = await self._ledger.due_by(until, owner, (after[0], after[1]), query.limit)
            wanted = states_shown_as(query.state)
            last = f"{found[-1].expiration}.{found[-1].id}" if len(found) == query.limit else None
            return Answer(TransferPage([show(one) for one in found if one.state in wanted], last))
        before = (_numbers(query.cursor, 1) or [FIRST])[0]
        found = await self._ledger.in_state(owner, states_shown_as(query.state), before, query.limit)
        last = str(found[-1].id) if len(found) == query.limit else None
        return Answer(TransferPage([show(one) for one in found], last))

    async def would_expire(self, call: Call, query: WhichDue) -> Answer[WouldExpire]:
        """Tell how many transfers would expire within a time, and how much; nothing is changed."""
        until = await self._ledger.now() + duration_ms(query.within, "within")
        return Answer(WouldExpire(iso(until), await self._ledger.would_expire(until, call.caller.owner)))

    async def list_transfer_events(self, call: Call, query: WhichEvents) -> Answer[EventPage]:
        """List what was to be told, the newest first; of itself, fulfilments that came too late."""
        before = (_numbers(query.cursor, 1) or [FIRST])[0]
        found = await self._ledger.events(query.kind, call.caller.owner, before, query.limit)
        return Answer(EventPage(found, str(found[-1].id) if len(found) == query.limit else None))

    async def read_participant(self, call: Call, path: OneParticipant) -> Answer[ParticipantShown]:
        """Read what a participant may owe, and owes."""
        positions = await self._ledger.positions(call.caller.owner, path.participant)
        return Answer(ParticipantShown(path.participant, positions))

    async def save_participant(
        self, call: Call, path: OneParticipant, body: ParticipantLimits
    ) -> Answer[ParticipantShown]:
        """Make a participant known, and say what it may owe in a currency."""
        owner = call.caller.owner
        await self._ledger.save_participant(owner, path.participant, body.webhook or "")
        if body.currency is not None:
            await self._ledger.set_limits(owner, path.participant, body.currency, body.liquidity, body.net_debit_cap)
        elif body.liquidity is not None or body.net_debit_cap is not None:
            raise BadRequest("liquidity and netDebitCap are of a currency: which?", field="currency")
        positions = await self._ledger.positions(owner, path.participant)
        return Answer(ParticipantShown(path.participant, positions))

    @property
    def _ledger(self) -> Ledger:
        if self._api.archive is None:
            raise DatabaseRefused("Transfers are kept in SQL, and this process has none: DATP_DATABASE_URL names it")
        return Ledger(self._api.archive.database)


def _route(
    method: Any, path: str, handler: Any, refusals: Any, *, status: int = 200, more: dict[int, str] | None = None
) -> Route:
    return Route(
        method=method,
        path=path,
        handler=handler,
        role=Role.CLIENT,
        tag="transfers",
        statuses={status: "As asked.", **(more or {})},
        refusals=refusals,
    )


def _numbers(cursor: str, count: int) -> list[int]:
    """What a cursor is made of; [] for none. Raises BadRequest."""
    if not cursor:
        return []
    parts = cursor.split(".")
    if len(parts) != count or not all(part.isdecimal() and part.isascii() and len(part) < 19 for part in parts):
        raise BadRequest("cursor must be one that a page of this list gave", field="cursor")
    return [int(part) for part in parts]
