"""With which keys an owner's webhooks are signed."""

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from typing import Final

from datp.archive.webhook_keys import WebhookKeys
from datp.errors import BadDefinition, DatabaseError, StartRefused
from datp.model.signature import SigningKey

log = logging.getLogger(__name__)

KNOWN_FOR_S: Final = 10.0
"""How long a new key may remain unknown to a sender; the one before it still signs, and will for a grace."""

OWNERS_MAX: Final = 10_000
"""Whose keys are remembered."""


class OwnerKeys:
    """The keys, from SQL; or, without SQL, the same for every owner, from the settings."""

    def __init__(self, keys: WebhookKeys | None, fixed: str) -> None:
        """Raises StartRefused when nothing can be signed."""
        self._keys = keys
        self._fixed = parse_keys(fixed)
        if keys is None and not self._fixed:
            raise StartRefused(
                "The role webhooks signs what it sends: name a database with DATP_DATABASE_URL, where each owner has a"
                " key, or one key for all with DATP_WEBHOOK_KEYS (make one with: datp webhooks keys new)"
            )
        self._known: OrderedDict[str, tuple[float, tuple[SigningKey, ...]]] = OrderedDict()
        self._reading: dict[str, asyncio.Task[tuple[SigningKey, ...]]] = {}
        """Owners whose keys are asked for this very moment; who needs them too waits for the same answer."""

    async def of(self, owner: str, now_ms: int) -> tuple[SigningKey, ...]:
        """The keys that sign for this owner now; the first is made when it is first needed. Raises DatabaseError."""
        if self._keys is None:
            return self._fixed
        known = self._known.get(owner)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        reading = self._reading.get(owner)
        if reading is None:
            reading = self._reading[owner] = asyncio.create_task(self._read(self._keys, owner, now_ms))
            reading.add_done_callback(lambda _: self._reading.pop(owner, None))
        try:
            return await asyncio.shield(reading)
        except DatabaseError as error:
            if known is None:
                raise
            log.warning("the signing keys of %s can't be read: %s; those that are known are used", owner, error)
            return known[1]

    async def _read(self, keys: WebhookKeys, owner: str, now_ms: int) -> tuple[SigningKey, ...]:
        found = await keys.signing(owner, now_ms) or await keys.first(owner, secrets.token_bytes, now_ms)
        signing = tuple(SigningKey(one.secret) for one in found)
        self._known[owner] = (time.monotonic() + KNOWN_FOR_S, signing)
        self._known.move_to_end(owner)
        while len(self._known) > OWNERS_MAX:
            self._known.popitem(last=False)
        return signing


def parse_keys(text: str) -> tuple[SigningKey, ...]:
    """The keys of a setting, with commas between. Raises StartRefused."""
    try:
        return tuple(SigningKey(one.strip()) for one in text.split(",") if one.strip())
    except BadDefinition as error:
        raise StartRefused(f"webhook_keys: {error}") from None
