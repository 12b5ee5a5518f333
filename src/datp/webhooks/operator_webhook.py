"""Operator events are posted to the operator's own webhook, signed, until it takes them.

SQL holds what is due, and any number of nodes share the work: each claims what it posts. An event is posted when it
first happens or happens again after an acknowledgement, and while it goes on, every `operator_webhook_again_ms`.
"""

import asyncio
import logging
from dataclasses import replace
from typing import Final

import msgspec

from datp.archive.events import DueEvent, EventLog
from datp.errors import StartRefused
from datp.hotstore.store import Store
from datp.model.operator_event import OperatorEvent
from datp.model.reply import iso
from datp.model.signature import SigningKey, signed_headers
from datp.service import RoleService
from datp.settings import Settings
from datp.webhooks.delivery import Verdict
from datp.webhooks.post import Poster

log = logging.getLogger(__name__)

TYPE: Final = "operator.event"
AT_ONCE: Final = 20
FIRST_PAUSE_MS: Final = 5_000
PAUSE_MS_MAX: Final = 3_600_000
ANYWHERE: Final = "0.0.0.0/0,::/0"
"""The operator named the URL, so it may be on this very network."""


class Told(msgspec.Struct, frozen=True):
    """The body."""

    type: str
    timestamp: str
    data: OperatorEvent


class Teller(RoleService):
    """A part of the role `webhooks`, where `operator_webhook` is set."""

    def __init__(self, store: Store, settings: Settings, events: EventLog) -> None:
        """Within a running loop. Raises StartRefused, BadDefinition."""
        super().__init__("operator webhook", settings)
        if not settings.operator_webhook_key:
            raise StartRefused(
                "operator_webhook needs a key to sign with: set DATP_OPERATOR_WEBHOOK_KEY to a whsec_ key"
            )
        self._url = settings.operator_webhook
        self._key = SigningKey(settings.operator_webhook_key)
        self._store = store
        self._events = events
        self._poster = Poster(replace(settings, outbound_networks=ANYWHERE))

    async def turn(self) -> None:
        due = await self._events.due(self._store.clock.now_ms(), AT_ONCE)
        await asyncio.gather(*(self._tell(one) for one in due))
        if len(due) < AT_ONCE:
            await self.pause(self.settings.event_interval_ms / 1000)

    async def stop(self) -> None:
        await super().stop()
        await self._poster.close()

    async def _tell(self, due: DueEvent) -> None:
        """Posts once, if nobody else does."""
        now_ms = self._store.clock.now_ms()
        until = now_ms + self.settings.webhook_timeout_ms + self.settings.event_claim_ms
        if not await self._events.claim(due, until):
            return
        event = due.event
        body = msgspec.json.encode(Told(TYPE, iso(event.last_at), event))
        headers = signed_headers(f"{event.id}-{event.last_at}", now_ms // 1000, body, [self._key])
        outcome = await self._poster.post(self._url, headers, body, self.settings.webhook_timeout_ms)
        if outcome.verdict == Verdict.DELIVERED:
            await self._events.told(due, until, self._store.clock.now_ms())
            return
        pause_ms = max(min(FIRST_PAUSE_MS * 2 ** min(due.tries, 20), PAUSE_MS_MAX), outcome.retry_after_ms)
        log.warning("operator event %s was not taken by operator_webhook: %s", event.id, outcome.comment)
        await self._events.retell(due, until, self._store.clock.now_ms() + pause_ms)
