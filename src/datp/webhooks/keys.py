"""With which keys an owner's webhooks are signed."""

import logging
import secrets
import time
from typing import Final

from datp.archive.webhook_keys import WebhookKeys
from datp.errors import BadDefinition, DatabaseError, StartRefused
from datp.model.signature import SigningKey

log = logging.getLogger(__name__)

KNOWN_FOR_S: Final = 10.0
"""How long a new key may remain unknown to a sender; the one before it still signs, and will for a grace."""


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
        self._known: dict[str, tuple[float, tuple[SigningKey, ...]]] = {}

    async def of(self, owner: str, now_ms: int) -> tuple[SigningKey, ...]:
        """The keys that sign for this owner now; the first is made when it is first needed. Raises DatabaseError."""
        if self._keys is None:
            return self._fixed
        known = self._known.get(owner)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        try:
            found = await self._keys.signing(owner, now_ms)
            if not found:
                found = await self._keys.first(owner, secrets.token_bytes, now_ms)
        except DatabaseError as error:
            if known is None:
                raise
            log.warning("the signing keys of %s can't be read: %s; those that are known are used", owner, error)
            return known[1]
        keys = tuple(SigningKey(one.secret) for one in found)
        self._known[owner] = (time.monotonic() + KNOWN_FOR_S, keys)
        return keys


def parse_keys(text: str) -> tuple[SigningKey, ...]:
    """The keys of a setting, with commas between. Raises StartRefused."""
    try:
        return tuple(SigningKey(one.strip()) for one in text.split(",") if one.strip())
    except BadDefinition as error:
        raise StartRefused(f"webhook_keys: {error}") from None
