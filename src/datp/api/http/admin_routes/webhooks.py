"""Webhooks of every owner: deliveries, URLs in trouble, and the keys that sign."""

from typing import Annotated, Any

import msgspec

from datp.api.http.admin_routes.common import ADMIN, OPERATOR, Done, Limit, Reason, act
from datp.api.http.api import Api
from datp.api.http.client_routes.webhooks import DeliveryPage, KeyList, OneDelivery, Resent, cursor_of, read_cursor
from datp.api.http.routes import Answer, Call, Route, Words
from datp.errors import Conflict, DatabaseError, InvalidId, NotFound
from datp.model.ids import parse_owner
from datp.model.pipeline import duration_ms
from datp.webhooks.desk import DeliveryWithAttempts, ShownKey, ShownUrl


class Deliveries(Words, frozen=True):
    """All that is said must hold."""

    owner: Annotated[str, msgspec.Meta(description="Only those of this owner.")] = ""
    state: Annotated[str, msgspec.Meta(description="owed, retrying, waiting, delivered, parked or given-up.")] = ""
    cursor: Annotated[str, msgspec.Meta(description="The `cursor` of the page before.")] = ""
    limit: Limit = 100


class KeysOf(Words, frozen=True):
    owner: Annotated[str, msgspec.Meta(description="Whose keys.")]


class Resume(Reason, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which URL is to be called again."""

    url: str


class Rotate(Reason, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whose new key it is to be."""

    owner: str
    scheme: str = "v1"
    """v1: HMAC-SHA256, with a secret that both sides have. v1a: ed25519."""
    grace: str = "24h"
    """How long the other keys of this kind go on signing; at most 7d."""


class Urls(msgspec.Struct, frozen=True):
    """What is held against URLs."""

    urls: list[ShownUrl]


class AdminWebhookRoutes:
    """The routes, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        base, tag = "/v1/admin/webhooks", "operators: webhooks"
        looking: dict[str, Any] = {**OPERATOR, "tag": tag, "method": "GET"}
        acting: dict[str, Any] = {"tag": tag, "method": "POST"}
        return [
            Route(path=f"{base}/deliveries", handler=self.admin_list_deliveries, refusals=(DatabaseError,), **looking),
            Route(
                path=f"{base}/deliveries/{{id}}",
                handler=self.admin_show_delivery,
                refusals=(NotFound, InvalidId, DatabaseError),
                **looking,
            ),
            Route(
                path=f"{base}/deliveries/{{id}}/resend",
                handler=self.admin_resend_delivery,
                statuses={202: "It is sent again."},
                refusals=(NotFound, InvalidId, Conflict, DatabaseError),
                **acting,
                **OPERATOR,
            ),
            Route(path=f"{base}/urls", handler=self.admin_list_urls, **looking),
            Route(path=f"{base}/urls/resume", handler=self.admin_resume_url, **acting, **OPERATOR),
            Route(
                path=f"{base}/keys",
                handler=self.admin_list_webhook_keys,
                refusals=(DatabaseError,),
                tag=tag,
                method="GET",
                **ADMIN,
            ),
            Route(
                path=f"{base}/keys",
                handler=self.admin_rotate_webhook_key,
                statuses={201: "The new key signs."},
                refusals=(DatabaseError,),
                **acting,
                **ADMIN,
            ),
        ]

    async def admin_list_deliveries(self, call: Call, query: Deliveries) -> Answer[DeliveryPage]:
        """List deliveries of all owners, the newest first; with state owed, those to be sent, the next one first."""
        before = read_cursor(query.cursor) if query.cursor else None
        owner = parse_owner(query.owner) if query.owner else ""
        found = await self._api.operations.webhooks.page(owner, query.state, before=before, count=query.limit)
        return Answer(DeliveryPage(found, cursor_of(found) if len(found) == query.limit else None))

    async def admin_show_delivery(self, call: Call, path: OneDelivery) -> Answer[DeliveryWithAttempts]:
        """Show a delivery, with every try: when, the answer's status and beginning, and how long it took."""
        return Answer(await self._api.operations.webhooks.show(path.id))

    async def admin_resend_delivery(self, call: Call, path: OneDelivery, body: Reason) -> Answer[Resent]:
        """Send a transaction's end again, with the same webhook-id, even to a URL that is paused."""
        return Answer(Resent(path.id, await self._api.operations.resend_webhook(act(call, body.reason), path.id)), 202)

    async def admin_list_urls(self, call: Call) -> Answer[Urls]:
        """List the URLs in trouble: failures, until when they are paused, and those that answered 410."""
        return Answer(Urls(await self._api.operations.webhooks.urls()))

    async def admin_resume_url(self, call: Call, body: Resume) -> Answer[Done]:
        """Hold nothing against a URL any more: what waits for it is sent."""
        was_closed = await self._api.operations.resume_webhook_url(act(call, body.reason), body.url)
        return Answer(Done("OK" if was_closed else "SAME"))

    async def admin_list_webhook_keys(self, call: Call, query: KeysOf) -> Answer[KeyList]:
        """List the keys with which an owner's webhooks are signed now, as a receiver needs them."""
        return Answer(KeyList(await self._api.operations.webhooks.keys(parse_owner(query.owner))))

    async def admin_rotate_webhook_key(self, call: Call, body: Rotate) -> Answer[ShownKey]:
        """Make a new key for an owner; the others of this kind sign beside it until the grace is over."""
        grace_ms = duration_ms(body.grace, "grace")
        key = await self._api.operations.rotate_webhook_key(act(call, body.reason), body.owner, body.scheme, grace_ms)
        return Answer(key, 201)
