"""What owners and operators see of deliveries, and do about them: list, show, send again; keys; URLs in trouble.

    desk = WebhookDesk(store, archive)
    page = await desk.page(owner="acme", state="parked")
    await desk.resend(page[0].id, owner="acme")

With `owner` only what is that owner's is there; without, everybody's is, for operators.
"""

import secrets
from typing import Final

import msgspec

from datp.archive.archive import Archive
from datp.archive.deliveries import Deliveries, DeliveryBrief, DeliveryState
from datp.archive.webhook_keys import WebhookKey, WebhookKeys
from datp.errors import BadRequest, Conflict, DatabaseRefused, InvalidId, NotFound
from datp.hotstore.store import Found, OwedWebhook, Store, UrlTrouble
from datp.model.ids import TransactionId, parse_transaction_id, partition_of
from datp.model.metadata import check_webhook_url, decode_webhook
from datp.model.reply import iso, reply_from
from datp.model.signature import Scheme, SigningKey
from datp.reply_converter import reply_converter
from datp.webhooks.delivery import COMPLETED, body_of, delivery_id

OWED: Final = "owed"
"""The state of what the store holds, tried or not."""
STATES: Final = (OWED, *DeliveryState)
LOOKED_AT_MAX: Final = 10_000
"""Of what the store owes, in each partition, when an owner's part of it is looked for."""
GRACE_MAX_MS: Final = 7 * 86_400_000
"""How long an old key may go on signing beside a new one."""


class ShownDelivery(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A delivery, as lists show it."""

    id: str
    """The webhook-id."""
    tx_id: str
    sequence: int
    owner: str
    url: str
    type: str
    state: str
    """owed: the store holds it. retrying: it failed, and the store holds it. waiting: it failed, and SQL holds it.
    delivered. parked: its tries are used up. given-up: a report whose tries are used up."""
    tries: int
    next_try_time: str | None
    status: int | None
    """Of the last answer; null when there was none."""
    says: str
    """The first of the last answer, or why there was none."""
    created_time: str | None
    """Of the first try."""
    last_updated: str | None


class ShownAttempt(msgspec.Struct, frozen=True, rename="camel"):
    """One try."""

    time: str
    status: int | None
    latency_ms: int
    says: str


class DeliveryWithAttempts(msgspec.Struct, frozen=True, rename="camel"):
    """A delivery, and every try."""

    delivery: ShownDelivery
    attempts: list[ShownAttempt]


class ShownKey(msgspec.Struct, frozen=True, rename="camel"):
    """A key with which an owner's webhooks are signed, as a receiver needs it."""

    id: str
    owner: str
    scheme: Scheme
    verify_with: str
    """whsec_…: the secret that both sides have; whpk_…: the public half."""
    created_time: str
    retires_time: str | None
    """Until when it signs, once a newer one has come."""


class ShownUrl(msgspec.Struct, frozen=True, rename="camel"):
    """A URL in trouble."""

    url: str
    failures: int
    last_failure_time: str
    paused_until: str | None
    gone: bool
    """It answered 410: nothing is sent there until somebody resumes it."""
    says: str


class WebhookDesk:
    """Over a store, and the archive if there is one."""

    def __init__(self, store: Store, archive: Archive | None) -> None:
        self._store = store
        self._archive = archive
        self._deliveries = Deliveries(archive.database) if archive is not None else None
        self._keys = WebhookKeys(archive.database) if archive is not None else None

    # ── deliveries ───────────────────────────────────────────────────────────────────────────────────────────

    async def page(
        self, owner: str = "", state: str = "", *, before: tuple[int, str] | None = None, count: int = 100
    ) -> list[ShownDelivery]:
        """What SQL knows, the newest first; `state` owed (and without SQL): what the store holds, the next first.

        `before`: where the page before it ended, see cursor_of. Raises BadRequest, DatabaseError, StoreError.
        """
        if state and state not in STATES:
            raise BadRequest(f"state must be one of {', '.join(STATES)}", field="state")
        if state == OWED or self._deliveries is None:
            found = await self._owed(owner)
            return [_shown_owed(one) for one in found[:count]] if before is None else []
        return [_shown(one) for one in await self._deliveries.page(owner, state, before=before, count=count)]

    async def show(self, id_: str, owner: str = "") -> DeliveryWithAttempts:
        """A delivery with every try. Raises NotFound, InvalidId, DatabaseError, StoreError."""
        tx_id, sequence = _parse_id(id_)
        if self._deliveries is not None:
            found = await self._deliveries.read(id_)
            if found is not None and owner in ("", found.delivery.owner):
                attempts = [
                    ShownAttempt(iso(one.at), one.status or None, one.latency_ms, one.says) for one in found.attempts
                ]
                return DeliveryWithAttempts(_shown(found.delivery), attempts)
        for one in await self._owed(owner):
            if (one.tx_id, one.sequence) == (tx_id, sequence):
                return DeliveryWithAttempts(_shown_owed(one), [])
        raise _no_delivery(id_)

    async def resend(self, id_: str, owner: str = "") -> str:
        """An end is told again, from the first try on, whatever is held against its URL: due, or being sent already.

        A report is not: what came after it has been told, or will be. Raises NotFound, Conflict, DatabaseError.
        """
        tx_id, sequence = _parse_id(id_)
        row = await self._deliveries.read(id_) if self._deliveries is not None else None
        if row is not None and owner not in ("", row.delivery.owner):
            raise _no_delivery(id_)
        if row is not None and row.delivery.type != COMPLETED:
            raise Conflict(f"{id_} is a report, which is not sent again: what came after it says more", reason="REPORT")
        if row is None or row.delivery.state == DeliveryState.RETRYING:
            return await self._resend_from_store(id_, tx_id, sequence, owner)
        assert self._deliveries is not None
        body = None if row.has_body else await self._body(id_, tx_id, sequence)
        if await self._deliveries.resend(id_, self._store.clock.now_ms(), body):
            return "OK"
        return "SENDING"

    async def _resend_from_store(self, id_: str, tx_id: TransactionId, sequence: int, owner: str) -> str:
        if partition_of(tx_id) >= self._store.partitions:
            raise _no_delivery(id_)
        async with self._store.turn() as turn:
            reply = turn.get_state([tx_id])
        found = reply.value[0]
        fields = found.fields if isinstance(found, Found) else {}
        if owner and fields.get("owner", b"").decode() != owner:
            raise _no_delivery(id_)
        if fields and int(fields.get("sequence") or 0) != sequence:
            raise Conflict(f"{id_} is not the last thing that {tx_id} told", reason="REPLACED")
        async with self._store.turn() as turn:
            again = turn.resend_webhook([tx_id])
        result = again.value[0]
        if result.code in ("OK", "SENDING"):
            return result.code
        if result.code == "NOT_ENDED":
            raise Conflict(f"{tx_id} has not ended: it is {result.text}", reason=result.code)
        if result.code == "NO_WEBHOOK":
            raise Conflict(f"{tx_id} was started without a webhook", reason=result.code)
        raise _no_delivery(id_)

    async def _body(self, id_: str, tx_id: TransactionId, sequence: int) -> bytes:
        """What was told, made again of what is kept of the transaction: the same bytes."""
        assert self._archive is not None
        async with self._store.turn() as turn:
            reply = turn.get_state([tx_id])
        found = reply.value[0]
        if not isinstance(found, Found):
            kept = await self._archive.read([tx_id])
            if tx_id not in kept:
                raise Conflict(f"{id_} can't be sent again: {tx_id} is no longer kept", reason="NO_STATE")
            found = kept[tx_id]
        told = reply_from(tx_id, found.fields, found.parked)
        if told.sequence != sequence:
            raise Conflict(f"{id_} is not the last thing that {tx_id} told", reason="REPLACED")
        return body_of(COMPLETED, sequence, reply_converter(self._store.settings.reply_converter).body(told))

    async def _owed(self, owner: str) -> list[OwedWebhook]:
        async with self._store.turn() as turn:
            replies = [
                turn.list_webhooks(partition, count=LOOKED_AT_MAX) for partition in range(self._store.partitions)
            ]
        found = [one for reply in replies for one in reply.value if owner in ("", one.owner)]
        return sorted(found, key=lambda one: (one.due_ms, one.tx_id))

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def keys(self, owner: str) -> list[ShownKey]:
        """The keys that sign for the owner now, the newest first; the first is made if there is none.

        Raises DatabaseError.
        """
        keys, now_ms = self._need_keys(), self._store.clock.now_ms()
        found = await keys.signing(owner, now_ms)
        if not found:
            found = await keys.first(owner, secrets.token_bytes, now_ms)
        return [_shown_key(one) for one in found]

    async def rotate(self, owner: str, scheme: str = "v1", *, grace_ms: int = 86_400_000) -> ShownKey:
        """A new key signs; the owner's others of this kind sign beside it until the grace is over.

        Raises BadRequest, DatabaseError.
        """
        if scheme not in ("v1", "v1a"):
            raise BadRequest("scheme must be v1 (HMAC-SHA256) or v1a (ed25519)", field="scheme")
        if not 0 <= grace_ms <= GRACE_MAX_MS:
            raise BadRequest("grace must be at most 7d", field="grace")
        kind: Scheme = "v1" if scheme == "v1" else "v1a"
        return _shown_key(
            await self._need_keys().rotate(owner, kind, grace_ms=grace_ms, now_ms=self._store.clock.now_ms())
        )

    def _need_keys(self) -> WebhookKeys:
        if self._keys is None:
            raise DatabaseRefused(
                "The keys of owners are kept in SQL, and this process has none: name it with DATP_DATABASE_URL"
            )
        return self._keys

    # ── URLs in trouble ──────────────────────────────────────────────────────────────────────────────────────

    async def urls(self) -> list[ShownUrl]:
        """What is held against URLs, the longest paused last. Raises StoreError."""
        async with self._store.turn() as turn:
            replies = [turn.list_urls(partition) for partition in range(self._store.partitions)]
        found = [one for reply in replies for one in reply.value]
        return [_shown_url(one) for one in sorted(found, key=lambda one: (one.is_gone, one.paused_until_ms, one.url))]

    async def resume(self, url: str) -> bool:
        """Nothing is held against the URL any more; whether it was paused or stopped. Raises BadRequest."""
        checked = check_webhook_url(url, self._store.settings.webhook_url_length_max, "url")
        async with self._store.turn() as turn:
            reply = turn.report_urls([(checked, "fine", "")])
        return reply.value[0].code == "CLOSED"


def _parse_id(text: str) -> tuple[TransactionId, int]:
    """The parts of a webhook-id. Raises InvalidId."""
    tx_id, _, sequence = text.rpartition("-")
    if not (sequence.isascii() and sequence.isdigit() and len(sequence) <= 16):
        raise InvalidId("A delivery's id is its webhook-id: tx-…-1763550000000", field="id")
    return parse_transaction_id(tx_id), int(sequence)


def _no_delivery(id_: str) -> NotFound:
    return NotFound(f"There is no delivery {id_}")


def _shown(one: DeliveryBrief) -> ShownDelivery:
    return ShownDelivery(
        id=one.id,
        tx_id=one.tx_id,
        sequence=one.sequence,
        owner=one.owner,
        url=one.url,
        type=one.type,
        state=one.state,
        tries=one.tries,
        next_try_time=iso(one.next_try_at) if one.next_try_at is not None else None,
        status=one.status or None,
        says=one.says,
        created_time=iso(one.created_at),
        last_updated=iso(one.updated_at),
    )


def _shown_owed(one: OwedWebhook) -> ShownDelivery:
    return ShownDelivery(
        id=delivery_id(one.tx_id, one.sequence),
        tx_id=one.tx_id,
        sequence=one.sequence,
        owner=one.owner,
        url=decode_webhook(one.webhook).url,
        type=one.kind,
        state=str(DeliveryState.PARKED) if one.is_parked else OWED,
        tries=one.attempt,
        next_try_time=None if one.is_parked else iso(int(one.due_ms)),
        status=None,
        says=one.comment,
        created_time=None,
        last_updated=None,
    )


def _shown_key(one: WebhookKey) -> ShownKey:
    return ShownKey(
        one.id,
        one.owner,
        one.scheme,
        SigningKey(one.secret).for_receivers,
        iso(one.created_at),
        iso(one.retires_at) if one.retires_at is not None else None,
    )


def _shown_url(one: UrlTrouble) -> ShownUrl:
    return ShownUrl(
        one.url,
        one.failures,
        iso(one.last_at_ms),
        iso(one.paused_until_ms) if one.paused_until_ms else None,
        one.is_gone,
        one.comment,
    )
