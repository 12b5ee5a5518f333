"""Keys, the audit log and operator events."""

from typing import Annotated, Any

import msgspec

from datp.api.http.admin_routes.common import ADMIN, OPERATOR, Done, Limit, Reason, act
from datp.api.http.api import Api
from datp.api.http.routes import Answer, Call, Route, Words
from datp.archive.audit import AuditEntry
from datp.archive.keyring import ApiKey
from datp.errors import DatabaseError, NotFound
from datp.model.api_key import Role
from datp.model.operator_event import OperatorEvent
from datp.model.pipeline import Duration, duration_ms
from datp.model.reply import iso


class OneKey(Words, frozen=True):
    key_id: Annotated[str, msgspec.Meta(description="The key's id, which is the middle part of the key.")]


class OneEvent(Words, frozen=True):
    event_id: Annotated[str, msgspec.Meta(description="The operator event.")]


class AuditQuery(Words, frozen=True):
    subject: Annotated[str, msgspec.Meta(description="Only what was done to this: a txId, a node, a key, …")] = ""
    before: Annotated[int, msgspec.Meta(ge=1, le=2**53, description="The last page's last id.")] | None = None
    limit: Limit = 100


class EventsQuery(Words, frozen=True):
    acknowledged: Annotated[bool, msgspec.Meta(description="Those too that somebody has acknowledged.")] = False
    limit: Limit = 100


class NewKey(Reason, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Whose key it is to be, and what it allows."""

    owner: str
    role: Role = Role.CLIENT
    name: str = ""
    """What it is for."""
    expires_in: Duration | None = None
    """`90d`, `12h`, or milliseconds; by default never."""


class Key(msgspec.Struct, frozen=True, rename="camel"):
    """A key, without its secret."""

    id: str
    owner: str
    role: Role
    name: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class MadeKey(msgspec.Struct, frozen=True, rename="camel"):
    """A new key."""

    id: str
    key: str
    """To be sent as `Authorization: Bearer …`. It is told this once: only a hash of it is kept."""
    expires_at: str | None


class Keys(msgspec.Struct, frozen=True, rename="camel"):
    """Every key, by owner."""

    keys: list[Key]


class AuditPage(msgspec.Struct, frozen=True, rename="camel"):
    """What operators did, the last thing first."""

    entries: list[AuditEntry]
    next_before: int | None
    """Given back as `before`, it brings the next page; null at the end."""


class Events(msgspec.Struct, frozen=True, rename="camel"):
    """What operators are told, the last first."""

    events: list[OperatorEvent]


class AccessRoutes:
    """The routes, over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def routes(self) -> list[Route]:
        keys: dict[str, Any] = {**ADMIN, "tag": "operators: keys"}
        told: dict[str, Any] = {**OPERATOR, "tag": "operators: audit log and events"}
        return [
            Route(method="GET", path="/v1/admin/keys", handler=self.admin_list_keys, refusals=(DatabaseError,), **keys),
            Route(
                method="POST",
                path="/v1/admin/keys",
                handler=self.admin_create_key,
                statuses={201: "It was made."},
                refusals=(DatabaseError,),
                **keys,
            ),
            Route(
                method="POST",
                path="/v1/admin/keys/{keyId}/revoke",
                handler=self.admin_revoke_key,
                refusals=(NotFound, DatabaseError),
                **keys,
            ),
            Route(
                method="GET", path="/v1/admin/audit", handler=self.admin_read_audit, refusals=(DatabaseError,), **told
            ),
            Route(
                method="GET",
                path="/v1/admin/events",
                handler=self.admin_list_events,
                refusals=(DatabaseError,),
                **told,
            ),
            Route(
                method="POST",
                path="/v1/admin/events/{eventId}/acknowledge",
                handler=self.admin_acknowledge_event,
                refusals=(NotFound, DatabaseError),
                **told,
            ),
        ]

    async def admin_list_keys(self, call: Call) -> Answer[Keys]:
        """List the keys, without their secrets."""
        return Answer(Keys([_shown(key) for key in await self._api.operations.keyring().every()]))

    async def admin_create_key(self, call: Call, body: NewKey) -> Answer[MadeKey]:
        """Make a key. It is told this once, because only a hash of it is kept."""
        lasts_ms = None if body.expires_in is None else duration_ms(body.expires_in, "expiresIn")
        key, text = await self._api.operations.create_key(
            act(call, body.reason), body.owner, body.role, body.name, lasts_ms=lasts_ms
        )
        return Answer(MadeKey(key.id, text, _iso(key.expires_at)), 201)

    async def admin_revoke_key(self, call: Call, path: OneKey, body: Reason) -> Answer[Done]:
        """Have a key open nothing any more; every process knows it within `api_key_cache_ms`."""
        before = await self._api.operations.revoke_key(act(call, body.reason), path.key_id)
        self._api.access.forget(path.key_id)
        return Answer(Done("OK" if before.revoked_at is None else "SAME"))

    async def admin_read_audit(self, call: Call, query: AuditQuery) -> Answer[AuditPage]:
        """Read what operators did: who, what, to which thing, what it was and became, and why."""
        log = self._api.operations.audit_log()
        entries = await log.read(subject=query.subject, before_id=query.before, count=query.limit + 1)
        page = entries[: query.limit]
        return Answer(AuditPage(page, page[-1].id if len(entries) > query.limit else None))

    async def admin_list_events(self, call: Call, query: EventsQuery) -> Answer[Events]:
        """List what operators are to know: trouble, what was parked, receivers that are paused."""
        return Answer(Events(await self._api.events.list(acknowledged=query.acknowledged, count=query.limit)))

    async def admin_acknowledge_event(self, call: Call, path: OneEvent, body: Reason) -> Answer[Done]:
        """Say that somebody has seen an event; if it happens again, it begins anew."""
        await self._api.operations.acknowledge_event(act(call, body.reason), path.event_id)
        return Answer(Done("OK"))


def _shown(key: ApiKey) -> Key:
    created, expires, revoked = (_iso(at) for at in (key.created_at, key.expires_at, key.revoked_at))
    assert created is not None
    return Key(key.id, key.owner, key.role, key.name, created, expires, revoked)


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)
