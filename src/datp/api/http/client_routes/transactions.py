"""Transactions, for the client whose they are: start, wait, read, list, flow, switches, cancel."""

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from datp.api.http.api import Api
from datp.api.http.problem import Problem, problem_of
from datp.api.http.reading import decode_body
from datp.api.http.routes import Answer, Call, CallerGone, Headers, Route, Words
from datp.api.listing import Page, list_transactions
from datp.api.transactions import Started, StartRequest
from datp.archive.search import SearchFilter
from datp.errors import (
    BadRequest,
    BadSwitch,
    Conflict,
    DatabaseError,
    DatpError,
    NotFound,
    StoreFull,
    TooLarge,
    TooMany,
)
from datp.model.api_key import Role
from datp.model.ids import TransactionId, parse_transaction_id
from datp.model.reply import Reply
from datp.model.status import FINAL, Status
from datp.model.values import shown

WAIT_MAX_S: Final = 60
LIST_MAX: Final = 500

TxId = Annotated[str, msgspec.Meta(description="The transaction's id.", examples=["tx-00-1hf7yat00g0123456789ab"])]
Wait = Annotated[
    float,
    msgspec.Meta(ge=0, le=WAIT_MAX_S, description="Seconds to wait for what is asked; then it is told as it is."),
]
Since = Annotated[
    int,
    msgspec.Meta(
        ge=0,
        le=2**53,
        description="A sequence that the caller knows: any change after it ends the waiting, not only the end.",
    ),
]
Time = Annotated[
    str, msgspec.Meta(description="As in replies, or milliseconds since 1970.", examples=["2026-11-18T10:00:00.000Z"])
]


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────────────


class OneTransaction(Words, frozen=True):
    tx_id: TxId


class OneExternalId(Words, frozen=True):
    external_id: Annotated[str, msgspec.Meta(description="The client's own id, as it was given at the start.")]


class OneSwitch(Words, frozen=True):
    tx_id: TxId
    name: Annotated[str, msgspec.Meta(description="The switch.", examples=["approved"])]


class Polling(Words, frozen=True):
    wait: Wait | None = None
    since: Since | None = None


class ListQuery(Words, frozen=True):
    status: Annotated[Status, msgspec.Meta(description="Only those with this.")] | None = None
    transaction_type: Annotated[str, msgspec.Meta(description="Only those of this type.")] | None = None
    external_id: Annotated[str, msgspec.Meta(description="Only those that were started with it.")] | None = None
    from_: Annotated[Time, msgspec.Meta(description="Only those that started then or later.")] | None = msgspec.field(
        default=None, name="from"
    )
    to: Annotated[Time, msgspec.Meta(description="Only those that started before.")] | None = None
    cursor: Annotated[str, msgspec.Meta(description="The `nextCursor` of the page before.")] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIST_MAX, description="How many at the most.")] = 50


class StartHeaders(Words, frozen=True):
    idempotency_key: (
        Annotated[
            str,
            msgspec.Meta(
                min_length=1,
                max_length=255,
                description="A text that is new for each start: the same request with it again is answered, and starts"
                " nothing. It is kept for a day.",
            ),
        ]
        | None
    ) = msgspec.field(default=None, name="Idempotency-Key")


class StartBody(StartRequest, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A transaction to be started."""

    wait: Wait | None = None


class BatchItem(StartRequest, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One of a batch."""

    idempotency_key: str | None = None
    """As the header `Idempotency-Key` of a single start. Not beside an externalId, which does the same."""


class BatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Transactions to be started; each is handled alone."""

    transactions: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, description="Each as in a single start.")]


class SwitchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a switch is to be."""

    value: Annotated[
        bool | int | float | str | None,
        msgspec.Meta(description="A short text, a number or a boolean; null deletes it."),
    ]


class CancelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why, for the transaction's note."""

    reason: str = ""


NO_REASON: Final = CancelBody()


# ── what is answered ─────────────────────────────────────────────────────────────────────────────────────────────


class BatchResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What became of one of a batch: its reply, or why it was not started."""

    status: int
    """As if it had been started alone."""
    is_replay: bool = msgspec.field(default=False, name="idempotentReplay")
    reply: Reply | None = None
    problem: Problem | None = None


class BatchReply(msgspec.Struct, frozen=True):
    """A result for each, in order."""

    results: list[BatchResult]


class Flow(msgspec.Struct, frozen=True, rename="camel"):
    """Every step as it ran."""

    tx_id: str
    sequence: int
    steps: dict[str, Any]
    flow: list[dict[str, Any]]


class Switches(msgspec.Struct, frozen=True, rename="camel"):
    """All switches of a transaction."""

    tx_id: str
    switches: dict[str, bool | int | float | str]


class Switch(msgspec.Struct, frozen=True, rename="camel"):
    """One switch, as it is now."""

    tx_id: str
    name: str
    value: bool | int | float | str | None


_item_decoder = msgspec.json.Decoder(BatchItem)

STARTED: Final = {
    200: "It has ended: what it came to.",
    202: "It was started, and has not ended yet.",
}


class TransactionRoutes:
    """The routes, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        common: dict[str, Any] = {"role": Role.CLIENT, "tag": "transactions"}
        one = "/v1/transactions/{txId}"
        reading = (NotFound, DatabaseError, TooMany)
        acting = (NotFound, Conflict, DatabaseError)
        return [
            Route(
                method="POST",
                path="/v1/transactions",
                handler=self.start_transaction,
                statuses=STARTED,
                refusals=(NotFound, Conflict, StoreFull, TooLarge, TooMany, DatabaseError),
                **common,
            ),
            Route(
                method="POST",
                path="/v1/transactions/batch",
                handler=self.start_batch,
                refusals=(TooLarge, DatabaseError),
                body_bytes_max="http_batch_bytes_max",
                **common,
            ),
            Route(
                method="GET",
                path="/v1/transactions",
                handler=self.list_transactions,
                refusals=(DatabaseError,),
                **common,
            ),
            Route(method="GET", path=one, handler=self.read_transaction, refusals=reading, **common),
            Route(
                method="GET",
                path="/v1/external-ids/{externalId}",
                handler=self.read_by_external_id,
                refusals=reading,
                **common,
            ),
            Route(
                method="GET", path=f"{one}/flow", handler=self.read_flow, refusals=(NotFound, DatabaseError), **common
            ),
            Route(
                method="GET",
                path=f"{one}/switches",
                handler=self.read_switches,
                refusals=(NotFound, DatabaseError),
                **common,
            ),
            Route(
                method="GET",
                path=f"{one}/switches/{{name}}",
                handler=self.read_switch,
                refusals=(NotFound, DatabaseError),
                **common,
            ),
            Route(
                method="PUT",
                path=f"{one}/switches/{{name}}",
                handler=self.set_switch,
                refusals=(BadSwitch, *acting),
                **common,
            ),
            Route(
                method="POST",
                path=f"{one}/cancel",
                handler=self.cancel_transaction,
                statuses={200: "It has ended.", 202: "It ends as soon as what runs has ended and is undone."},
                refusals=acting,
                **common,
            ),
        ]

    # ── starting ─────────────────────────────────────────────────────────────────────────────────────────────

    async def start_transaction(self, call: Call, headers: StartHeaders, body: StartBody) -> Answer[Reply]:
        """Start a transaction, and wait for its end if asked to.

        The same request again with the same externalId or `Idempotency-Key` starts nothing: it is answered with the
        transaction of the first, and `Idempotent-Replay: true`; a different request is refused.
        """
        api, owner = self._api, call.caller.owner
        started = await api.transactions.start(owner, body, headers.idempotency_key or "")
        within_s = body.wait
        if within_s is None:
            within_s = api.settings.longpoll_default_ms / 1000 if body.metadata.get("poll") == "long" else 0
        if within_s or started.reply is None:
            reply = await self._waited(call, started.tx_id, within_s, None)
        else:
            reply = started.reply
        told: list[tuple[bytes, bytes]] = [(b"location", f"/v1/transactions/{started.tx_id}".encode())]
        if started.is_replay:
            told.append((b"idempotent-replay", b"true"))
        return self._told(reply, 200 if reply.status in FINAL else 202, told)

    async def start_batch(self, call: Call, body: BatchBody) -> Answer[BatchReply]:
        """Start many transactions: a result for each, in order; one that is refused doesn't hurt the others."""
        requests: list[BatchItem] = []
        results: list[BatchResult | None] = []
        for place, raw in enumerate(body.transactions):
            try:
                requests.append(decode_body(_item_decoder, bytes(raw), f"transactions[{place}]"))
                results.append(None)
            except BadRequest as error:
                results.append(_not_started(error))
        keys = [request.idempotency_key or "" for request in requests]
        outcomes = iter(await self._api.transactions.start_batch(call.caller.owner, requests, keys))
        answers = []
        for result in results:
            if result is None:
                outcome = next(outcomes)
                result = (
                    _not_started(outcome) if isinstance(outcome, DatpError) else await self._was_started(call, outcome)
                )
            answers.append(result)
        return Answer(BatchReply(answers))

    async def _was_started(self, call: Call, started: Started) -> BatchResult:
        reply = started.reply or await self._api.transactions.reply(started.tx_id, owner=call.caller.owner)
        status, body = self._api.converter.tell(reply, 200 if reply.status in FINAL else 202)
        told: Any = reply if self._api.converter.is_plain else msgspec.Raw(body)
        return BatchResult(status, started.is_replay, told)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    async def read_transaction(self, call: Call, path: OneTransaction, query: Polling) -> Answer[Reply]:
        """Read a transaction, and wait for its end if asked to.

        With `wait`, the answer comes as soon as it has ended; with `since` too, as soon as it has changed since that
        sequence. When the time is out it is told as it is. For the same sequence the reply is always the same.
        """
        tx_id = parse_transaction_id(path.tx_id)
        return self._told(await self._waited(call, tx_id, query.wait or 0, query.since))

    async def read_by_external_id(self, call: Call, path: OneExternalId, query: Polling) -> Answer[Reply]:
        """Read the transaction that was started with an externalId, and wait for its end if asked to."""
        tx_id = await self._api.transactions.find_external_id(path.external_id, call.caller.owner)
        return self._told(await self._waited(call, tx_id, query.wait or 0, query.since))

    def _told(self, reply: Reply, status: int = 200, headers: Headers = ()) -> Answer[Reply]:
        """The reply, in the shape that clients want."""
        status, body = self._api.converter.tell(reply, status)
        return Answer(body, status, headers)

    async def _waited(self, call: Call, tx_id: TransactionId, within_s: float, since: int | None) -> Reply:
        owner = call.caller.owner

        async def read() -> Reply:
            if call.has_gone():
                raise CallerGone
            return await self._api.transactions.reply(tx_id, owner=owner, is_polled=True)

        return await self._api.transactions.wait(tx_id, within_s, since=since, read=read, owner=owner)

    async def list_transactions(self, call: Call, query: ListQuery) -> Answer[Page]:
        """List transactions, live and archived, the newest first."""
        api = self._api
        wanted = SearchFilter(
            status=query.status,
            type=query.transaction_type or "",
            owner=call.caller.owner,
            external_id=query.external_id or "",
            from_ms=0 if query.from_ is None else time_ms(query.from_, "from"),
            until_ms=None if query.to is None else time_ms(query.to, "to"),
        )
        database = api.archive.database if api.archive else None
        return Answer(
            await list_transactions(api.store, database, wanted, cursor=query.cursor or "", limit=query.limit)
        )

    async def read_flow(self, call: Call, path: OneTransaction) -> Answer[Flow]:
        """Read every step of a transaction, as it ran."""
        tx_id = await self._own(call, path.tx_id)
        shown = await self._api.transactions.show(tx_id)
        return Answer(Flow(tx_id, shown.reply.sequence, shown.steps, shown.flow))

    # ── switches, and the end ────────────────────────────────────────────────────────────────────────────────

    async def read_switches(self, call: Call, path: OneTransaction) -> Answer[Switches]:
        """Read the switches of a transaction. After its end it has none."""
        tx_id = await self._own(call, path.tx_id)
        return Answer(Switches(tx_id, (await self._api.transactions.show(tx_id)).switches))

    async def read_switch(self, call: Call, path: OneSwitch) -> Answer[Switch]:
        """Read a switch of a transaction: null if it isn't set."""
        tx_id = await self._own(call, path.tx_id)
        switches = (await self._api.transactions.show(tx_id)).switches
        return Answer(Switch(tx_id, path.name, switches.get(path.name)))

    async def set_switch(self, call: Call, path: OneSwitch, body: SwitchBody) -> Answer[Switch]:
        """Set a switch of a transaction, which may wait for it."""
        tx_id = await self._own(call, path.tx_id)
        await self._api.transactions.set_switch(tx_id, path.name, body.value)
        return Answer(Switch(tx_id, path.name, body.value))

    async def cancel_transaction(self, call: Call, path: OneTransaction, body: CancelBody = NO_REASON) -> Answer[Reply]:
        """Cancel a transaction; what its steps did is undone."""
        tx_id = await self._own(call, path.tx_id)
        await self._api.transactions.cancel(tx_id, body.reason)
        reply = await self._api.transactions.reply(tx_id)
        return self._told(reply, 200 if reply.status in FINAL else 202)

    async def _own(self, call: Call, text: str) -> TransactionId:
        """The id, if it is one of the caller's; to anybody else it isn't there."""
        tx_id = parse_transaction_id(text)
        await self._api.transactions.reply(tx_id, owner=call.caller.owner)
        return tx_id


def _not_started(error: DatpError) -> BatchResult:
    problem = problem_of(error)
    return BatchResult(problem.status, problem=problem)


def time_ms(text: str, field: str) -> int:
    """The time, in milliseconds; raises BadRequest."""
    if text.isascii() and text.isdecimal() and len(text) <= 15:
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise BadRequest(
            f"{field} must be a time such as 2026-11-18T10:00:00Z, or milliseconds since 1970, not {shown(text)}",
            field=field,
        ) from None
