"""Transactions of every owner: search, show whole, and act; one, or all that a filter means."""

from typing import Annotated, Any, Final, Literal

import msgspec

from datp.api.http.admin_routes.common import OPERATOR, Done, Limit, Reason, act
from datp.api.http.api import Api
from datp.api.http.client_routes.transactions import OneSwitch, OneTransaction, Time, time_ms
from datp.api.http.routes import Answer, Call, Route, Words
from datp.api.listing import Listed, Page, Parked, list_parked, list_transactions
from datp.api.log import LogPage, read_log
from datp.api.operations import BULK_MAX, BulkAction, BulkResult, Meant
from datp.api.sleepers import list_sleepers
from datp.api.transactions import Shown
from datp.archive.logbook import LogLevel
from datp.archive.search import SearchFilter
from datp.errors import BadRequest, Conflict, DatabaseError, NotFound
from datp.model.ids import TransactionId, parse_transaction_id
from datp.model.status import Status

ONE: Final = "/v1/admin/transactions/{txId}"

Level = Literal["trace", "debug", "info", "warning", "error", "fatal"]


class Search(Words, frozen=True):
    """All that is said must hold."""

    status: Annotated[Status, msgspec.Meta(description="Only those with this.")] | None = None
    transaction_type: Annotated[str, msgspec.Meta(description="Only those of this type.")] = ""
    owner: Annotated[str, msgspec.Meta(description="Only those of this owner.")] = ""
    external_id: Annotated[str, msgspec.Meta(description="Only those that were started with it.")] = ""
    parent: Annotated[str, msgspec.Meta(description="The branches of this transaction.")] = ""
    node_group: Annotated[str, msgspec.Meta(description="Only those of this node group.")] = ""
    from_: Annotated[Time, msgspec.Meta(description="Only those that started then or later.")] | None = msgspec.field(
        default=None, name="from"
    )
    to: Annotated[Time, msgspec.Meta(description="Only those that started before.")] | None = None
    cursor: Annotated[str, msgspec.Meta(description="The `nextCursor` of the page before.")] = ""
    limit: Limit = 50


class LogQuery(Words, frozen=True):
    level: Annotated[Level, msgspec.Meta(description="This level and those above.")] = "trace"
    after: Annotated[int, msgspec.Meta(ge=0, description="The `nextAfter` of the page before.")] = 0
    limit: Limit = 500


class ParkedQuery(Words, frozen=True):
    limit: Limit = 100


class SleepersQuery(Words, frozen=True):
    limit: Limit = 100


class SetSwitch(Reason, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a switch is to be, and why."""

    value: bool | int | float | str | None


class Retry(Reason, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A parked transaction goes on, as it is or with an edited document."""

    state: dict[str, Any] | None = None
    """The whole document, as `…/state` tells it, with what is wrong in it put right."""


class End(Reason, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A parked transaction ends; nothing is undone."""

    status: Status
    note: str = ""
    """A sentence for the client."""


class Rerun(Reason, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Another transaction like this one."""

    external_id: str | None = None
    keep_webhook: bool = False
    """Tell the same webhook; its receiver doesn't know the new one."""


class Rerunning(msgspec.Struct, frozen=True, rename="camel"):
    """The transaction that was started."""

    tx_id: str
    idempotent_replay: bool
    """It was there before: the externalId is that of the same request."""


class BulkFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which transactions are meant: all that is said must hold, and something must be said."""

    status: Status | None = None
    transaction_type: str = ""
    owner: str = ""
    node_group: str = ""
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    parked: bool = False
    """Those on the exception list; of these, owner, type and node group can be named."""


class Bulk(Reason, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """One action, done to many."""

    action: BulkAction
    filter: BulkFilter
    dry_run: bool = True
    """Only say what would be done: so it is unless `false` is said."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=BULK_MAX)] = 1_000
    status: Status | None = None
    """For `end`."""
    note: str = ""
    """For `end`."""
    switch: str = ""
    """For `set-switch`."""
    value: bool | int | float | str | None = None
    """For `set-switch`."""


class Sleepers(msgspec.Struct, frozen=True, rename="camel"):
    """Those that sleep or wait, the next to wake first; those that wait without a time-out last."""

    transactions: list[Listed]


class Exceptions(msgspec.Struct, frozen=True, rename="camel"):
    """The exception list, those that were parked last first."""

    transactions: list[Parked]


class AdminTransactionRoutes:
    """The routes, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        common: dict[str, Any] = {**OPERATOR, "tag": "operators: transactions"}
        reading = (NotFound, DatabaseError)
        acting = (NotFound, Conflict, DatabaseError)
        return [
            Route(
                method="GET",
                path="/v1/admin/transactions",
                handler=self.admin_list_transactions,
                refusals=reading,
                **common,
            ),
            Route(
                method="POST",
                path="/v1/admin/transactions/bulk",
                handler=self.admin_bulk,
                refusals=reading,
                **common,
            ),
            Route(method="GET", path="/v1/admin/sleepers", handler=self.admin_list_sleepers, **common),
            Route(method="GET", path="/v1/admin/exceptions", handler=self.admin_list_exceptions, **common),
            Route(method="GET", path=ONE, handler=self.admin_show_transaction, refusals=reading, **common),
            Route(method="GET", path=f"{ONE}/state", handler=self.admin_show_state, refusals=reading, **common),
            Route(method="GET", path=f"{ONE}/log", handler=self.admin_read_log, refusals=reading, **common),
            Route(method="POST", path=f"{ONE}/cancel", handler=self.admin_cancel, refusals=acting, **common),
            Route(method="POST", path=f"{ONE}/wake", handler=self.admin_wake, refusals=acting, **common),
            Route(
                method="PUT", path=f"{ONE}/switches/{{name}}", handler=self.admin_set_switch, refusals=acting, **common
            ),
            Route(method="POST", path=f"{ONE}/retry", handler=self.admin_retry, refusals=acting, **common),
            Route(method="POST", path=f"{ONE}/end", handler=self.admin_end, refusals=acting, **common),
            Route(
                method="POST",
                path=f"{ONE}/rerun",
                handler=self.admin_rerun,
                statuses={201: "It was started."},
                refusals=acting,
                **common,
            ),
        ]

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────

    async def admin_list_transactions(self, call: Call, query: Search) -> Answer[Page]:
        """Search the transactions of every owner, live and archived, the newest first."""
        api = self._api
        wanted = SearchFilter(
            status=query.status,
            type=query.transaction_type,
            owner=query.owner,
            external_id=query.external_id,
            parent=query.parent,
            from_ms=0 if query.from_ is None else time_ms(query.from_, "from"),
            until_ms=None if query.to is None else time_ms(query.to, "to"),
        )
        return Answer(
            await list_transactions(
                api.store,
                api.database,
                wanted,
                group=query.node_group,
                cursor=query.cursor,
                limit=query.limit,
            )
        )

    async def admin_list_exceptions(self, call: Call, query: ParkedQuery) -> Answer[Exceptions]:
        """List the exception list: what can't go on until an operator acts, with the reasons."""
        return Answer(Exceptions(await list_parked(self._api.store, query.limit)))

    async def admin_list_sleepers(self, call: Call, query: SleepersQuery) -> Answer[Sleepers]:
        """List the transactions that sleep or wait, the next to wake first."""
        return Answer(Sleepers(await list_sleepers(self._api.store, self._api.database, query.limit)))

    async def admin_show_transaction(self, call: Call, path: OneTransaction) -> Answer[Shown]:
        """Show everything about a transaction: the reply, where it is and why, switches, branches, every step."""
        return Answer(await self._api.transactions.show(parse_transaction_id(path.tx_id)))

    async def admin_show_state(self, call: Call, path: OneTransaction) -> Answer[dict[str, Any]]:
        """Show the document of a transaction as it is stored, to be edited and given back by a retry."""
        document = await self._api.transactions.document(parse_transaction_id(path.tx_id))
        try:
            msgspec.json.decode(document, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Conflict(f"{path.tx_id}: its document can't be read: {error}", reason="BROKEN") from None
        return Answer(document)

    async def admin_read_log(self, call: Call, path: OneTransaction, query: LogQuery) -> Answer[LogPage]:
        """Read what the steps of a transaction said, in its order."""
        tx_id = parse_transaction_id(path.tx_id)
        await self._api.transactions.reply(tx_id)
        level = LogLevel[query.level.upper()]
        return Answer(
            await read_log(self._api.operations.database(), tx_id, level=level, after=query.after, limit=query.limit)
        )

    # ── acting ───────────────────────────────────────────────────────────────────────────────────────────────

    async def admin_cancel(self, call: Call, path: OneTransaction, body: Reason) -> Answer[Done]:
        """Cancel a transaction; what its steps did is undone. The reason is the transaction's note too."""
        result = await self._api.operations.cancel(act(call, body.reason), _id(path))
        return Answer(Done(result.code))

    async def admin_wake(self, call: Call, path: OneTransaction, body: Reason) -> Answer[Done]:
        """Wake a transaction that sleeps, or waits for a switch, now."""
        result = await self._api.operations.wake(act(call, body.reason), _id(path))
        return Answer(Done(result.code))

    async def admin_set_switch(self, call: Call, path: OneSwitch, body: SetSwitch) -> Answer[Done]:
        """Set a switch of a transaction, which may wait for it; null deletes it."""
        code = await self._api.operations.set_switch(act(call, body.reason), _id(path), path.name, body.value)
        return Answer(Done(code))

    async def admin_retry(self, call: Call, path: OneTransaction, body: Retry) -> Answer[Done]:
        """Queue a parked transaction again, as it is or with an edited document."""
        state = b"" if body.state is None else msgspec.json.encode(body.state)
        result = await self._api.operations.retry(act(call, body.reason), _id(path), state)
        return Answer(Done(result.code))

    async def admin_end(self, call: Call, path: OneTransaction, body: End) -> Answer[Done]:
        """End a parked transaction with a final status; nothing is undone."""
        result = await self._api.operations.end(act(call, body.reason), _id(path), body.status, body.note)
        return Answer(Done(result.code))

    async def admin_rerun(self, call: Call, path: OneTransaction, body: Rerun) -> Answer[Rerunning]:
        """Start another transaction with the same owner, type, input and metadata, by the version that is active."""
        started = await self._api.operations.rerun(
            act(call, body.reason), _id(path), external_id=body.external_id, keep_webhook=body.keep_webhook
        )
        return Answer(Rerunning(started.tx_id, started.is_replay), 201)

    async def admin_bulk(self, call: Call, body: Bulk) -> Answer[BulkResult]:
        """Do something to every transaction that a filter means, each alone; or only say to how many."""
        said = body.filter
        if said.from_ is not None and said.parked:
            raise BadRequest("Of those that are parked, owner, type and node group can be named", field="filter")
        wanted = SearchFilter(
            status=said.status,
            type=said.transaction_type,
            owner=said.owner,
            from_ms=0 if said.from_ is None else time_ms(said.from_, "filter.from"),
            until_ms=None if said.to is None else time_ms(said.to, "filter.to"),
        )
        return Answer(
            await self._api.operations.bulk(
                act(call, body.reason),
                Meant(wanted, said.node_group, said.parked),
                body.action,
                dry_run=body.dry_run,
                limit=body.limit,
                status=body.status or "",
                note=body.note,
                switch=body.switch,
                value=body.value,
            )
        )


def _id(path: OneTransaction | OneSwitch) -> TransactionId:
    return parse_transaction_id(path.tx_id)
