"""An owner's webhooks: what became of deliveries, sending one again, and the keys that sign."""

from datetime import datetime
from typing import Annotated, Final

import msgspec

from datp.api.http.api import Api
from datp.api.http.routes import Answer, Call, Route, Words
from datp.errors import BadRequest, Conflict, DatabaseError, InvalidId, NotFound
from datp.model.api_key import Role
from datp.model.pipeline import duration_ms
from datp.webhooks.desk import DeliveryWithAttempts, ShownDelivery, ShownKey, WebhookDesk

PAGE_MAX: Final = 1_000

Limit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]


class OneDelivery(Words, frozen=True):
    id: Annotated[
        str, msgspec.Meta(description="The webhook-id.", examples=["tx-00-1hf7yat00g0123456789ab-1763550000"])
    ]


class WhichDeliveries(Words, frozen=True):
    state: str = ""
    """owed, retrying, waiting, delivered, parked or given-up."""
    cursor: str = ""
    limit: Limit = 100


class DeliveryPage(msgspec.Struct, frozen=True, rename="camel"):
    deliveries: list[ShownDelivery]
    cursor: str | None
    """Where the next page begins; null: there is none."""


class Resent(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    result: str
    """OK: it is due now. SENDING: it is being sent this very moment."""


class KeyList(msgspec.Struct, frozen=True, rename="camel"):
    keys: list[ShownKey]


class NewKey(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    scheme: str = "v1"
    """v1: HMAC-SHA256, with a secret that both sides have. v1a: ed25519."""
    grace: str = "24h"
    """How long the other keys of this kind go on signing; at most 7d."""


class WebhookRoutes:
    """The routes, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        one = "/v1/webhooks/deliveries/{id}"
        return [
            Route(method="GET", path="/v1/webhooks/deliveries", handler=self.list_deliveries, role=Role.CLIENT,
                  tag="webhooks", refusals=(DatabaseError,)),
            Route(method="GET", path=one, handler=self.read_delivery, role=Role.CLIENT,
                  tag="webhooks", refusals=(NotFound, InvalidId, DatabaseError)),
            Route(method="POST", path=f"{one}/resend", handler=self.resend_delivery, role=Role.CLIENT,
                  tag="webhooks", statuses={202: "It is sent again."},
                  refusals=(NotFound, InvalidId, Conflict, DatabaseError)),
            Route(method="GET", path="/v1/webhooks/keys", handler=self.list_webhook_keys, role=Role.CLIENT,
                  tag="webhooks", refusals=(DatabaseError,)),
            Route(method="POST", path="/v1/webhooks/keys", handler=self.rotate_webhook_key, role=Role.CLIENT,
                  tag="webhooks", statuses={201: "The new key signs."}, refusals=(DatabaseError,)),
        ]  # fmt: skip

    async def list_deliveries(self, call: Call, query: WhichDeliveries) -> Answer[DeliveryPage]:
        """List your deliveries, the newest first; with state owed, those that are to be sent, the next one first."""
        before = read_cursor(query.cursor) if query.cursor else None
        found = await self._desk.page(call.caller.owner, query.state, before=before, count=query.limit)
        return Answer(DeliveryPage(found, cursor_of(found) if len(found) == query.limit else None))

    async def read_delivery(self, call: Call, path: OneDelivery) -> Answer[DeliveryWithAttempts]:
        """Read a delivery, with every try: when, the answer's status and beginning, and how long it took."""
        return Answer(await self._desk.show(path.id, call.caller.owner))

    async def resend_delivery(self, call: Call, path: OneDelivery) -> Answer[Resent]:
        """Send a transaction's end again, with the same webhook-id, even to a URL that is paused.

        Reports are not sent again: what came after them says more.
        """
        return Answer(Resent(path.id, await self._desk.resend(path.id, call.caller.owner)), 202)

    async def list_webhook_keys(self, call: Call) -> Answer[KeyList]:
        """List the keys with which your webhooks are signed now, as a receiver needs them to verify.

        The first is made when it is first asked for, or needed.
        """
        return Answer(KeyList(await self._desk.keys(call.caller.owner)))

    async def rotate_webhook_key(self, call: Call, body: NewKey) -> Answer[ShownKey]:
        """Make a new key; your others of this kind sign beside it until the grace is over."""
        grace_ms = duration_ms(body.grace, "grace")
        return Answer(await self._desk.rotate(call.caller.owner, body.scheme, grace_ms=grace_ms), 201)

    @property
    def _desk(self) -> WebhookDesk:
        return WebhookDesk(self._api.store, self._api.archive)


def cursor_of(page: list[ShownDelivery]) -> str | None:
    """Where the page ended; None where there is no order to go on in."""
    if not page or page[-1].created_time is None:
        return None
    at_ms = round(datetime.fromisoformat(page[-1].created_time).timestamp() * 1000)
    return f"{at_ms}.{page[-1].id}"


def read_cursor(text: str) -> tuple[int, str]:
    at, _, id_ = text.partition(".")
    if not (at.isascii() and at.isdigit() and len(at) <= 16 and id_):
        raise BadRequest("cursor must be one that a page of this list gave", field="cursor")
    return int(at), id_
