"""What happens to a transaction, as a stream of server-sent events.

The first event is the transaction as it is, and every one after it a change; an event's id is the reply's sequence, so
that whoever was cut off goes on from there. Of changes that follow one another faster than they can be sent, the last
is sent.
"""

import logging
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec

from datp.api.http.api import Api
from datp.api.http.client_routes.transactions import OneTransaction
from datp.api.http.routes import EVENTS, Answer, Call, Route, Stream, Words
from datp.errors import BadRequest, DatabaseError, DatpError, NotFound, TooMany
from datp.longpoll.waiting import Waiter
from datp.model.api_key import Role
from datp.model.ids import TransactionId, parse_transaction_id
from datp.model.reply import Reply
from datp.model.status import FINAL
from datp.model.values import shown
from datp.reply_converter import ReplyConverter

log = logging.getLogger(__name__)

HEARTBEAT: Final = b": still here\n\n"

COMPLETED: Final = "transaction.completed"
PROGRESS: Final = "transaction.progress"
STATUS: Final = "transaction.status"


class Resuming(Words, frozen=True):
    last_event_id: Annotated[str, msgspec.Meta(description="The id of the last event that was received.")] | None = (
        msgspec.field(default=None, name="Last-Event-ID")
    )


class EventRoutes:
    """The route, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/v1/transactions/{txId}/events",
                handler=self.stream_events,
                role=Role.CLIENT,
                tag="transactions",
                statuses={200: "Events, until its end.", 204: "It has ended, and the caller knows: there is no more."},
                refusals=(NotFound, DatabaseError, TooMany),
                media_type=EVENTS,
            )
        ]

    async def stream_events(self, call: Call, path: OneTransaction, headers: Resuming) -> Stream | Answer[None]:
        """Follow a transaction: server-sent events, from how it is now until its end.

        An event's id is the reply's `sequence`, its data the reply. Its type is `transaction.status`,
        `transaction.progress` or `transaction.completed`; after the last the stream ends. With `Last-Event-ID` what
        the caller knows already is not sent again.
        """
        tx_id = parse_transaction_id(path.tx_id)
        known = _sequence(headers.last_event_id)
        reply = await self._api.transactions.reply(tx_id, owner=call.caller.owner)
        if reply.status in FINAL and reply.sequence == known:
            return Answer(b"", 204)  # to a browser this says: don't come again
        self._api.waiting.check_room(call.caller.owner)  # once it streams, nothing can be refused any more
        return Stream(self._events(call, tx_id, known))

    async def _events(self, call: Call, tx_id: TransactionId, known: int | None) -> AsyncIterator[bytes]:
        try:
            async for event in self._changes(call, tx_id, known):
                yield event
        except DatpError as error:
            log.warning("%s: its events end: %s", tx_id, error)  # whoever follows asks again from where it was

    async def _changes(self, call: Call, tx_id: TransactionId, known: int | None) -> AsyncIterator[bytes]:
        api, owner = self._api, call.caller.owner
        last: Reply | None = None
        with api.waiting.registered(tx_id, known, owner) as waiter:
            while not call.has_gone():
                reply = await api.transactions.reply(tx_id, owner=owner, is_polled=True)
                if reply.sequence != known:
                    yield event_of(reply, last, api.converter)
                    last, waiter.since = reply, reply.sequence
                    known = reply.sequence
                if reply.status in FINAL or api.waiting.is_closing:
                    return
                if not await self._changed(waiter):
                    yield HEARTBEAT

    async def _changed(self, waiter: Waiter) -> bool:
        """Whether it has, within a heartbeat."""
        return await waiter.sleep(self._api.settings.events_heartbeat_ms / 1000)


def event_of(reply: Reply, last: Reply | None, converter: ReplyConverter) -> bytes:
    """The event that tells this reply after the last one."""
    if reply.status in FINAL:
        kind = COMPLETED
    elif last is not None and bytes(reply.progress_report) != bytes(last.progress_report):
        kind = PROGRESS
    else:
        kind = STATUS
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (reply.sequence, kind.encode(), converter.body(reply))


def _sequence(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 16):
        raise BadRequest(f"Last-Event-ID is a sequence, a number, and not {shown(text)}", field="Last-Event-ID")
    return int(text)
